#include "image/tree.h"

#include <utility>

namespace drupe {
namespace {

constexpr int kMaxLinks = 40;  // As Linux has it: path_resolution(7).
// Lookups may take this many steps, and for each one this many more: a tame name takes one for each
// component, links to long chains of ".." take tens of thousands.
constexpr std::uint64_t kFreeSteps = std::uint64_t{1} << 20U;
constexpr std::uint64_t kStepsPerLookup = 300;

/// Appends the components of a symbolic link's target in reverse order, so that the next one is at the back.
void push_components(std::vector<std::string>& pending, std::string_view target) {
  std::vector<std::string> parts;
  while (!target.empty()) {
    const auto slash = target.find('/');
    const std::string_view part = target.substr(0, slash);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    target.remove_prefix(slash == std::string_view::npos ? target.size() : slash + 1);
  }
  pending.insert(pending.end(), std::make_move_iterator(parts.rbegin()),
                 std::make_move_iterator(parts.rend()));
}

}  // namespace

Result<ImagePath> split_image_path(std::string_view path) {
  ImagePath parts;
  while (!path.empty()) {
    const auto slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part == "..") return fail(ErrorCode::kIntegrity, "a name has \"..\" in it");
    if (!part.empty() && part != ".") parts.push_back(part);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return parts;
}

ImageTree::ImageTree(DiskSpace& space, std::uint32_t max_depth) : space_(space), max_depth_(max_depth) {
  root_ = &make();
  root_->links = 1;
}

Inode& ImageTree::make() {
  if (unused_.empty()) return pool_.emplace_back();
  Inode* inode = unused_.back();
  unused_.pop_back();
  return *inode;
}

void ImageTree::add(Inode& dir, const std::string& name, Inode& inode, int layer) {
  dir.children.emplace(name, DirEntry{&inode, layer});
  ++inode.links;
  ++entries_;
}

/// Goes down to the child `name` without following it; null when it is missing and shall not be made.
Result<Inode*> ImageTree::step(Inode& dir, std::string_view name, Missing missing, int layer) {
  const auto at = dir.children.find(name);
  if (at != dir.children.end()) {
    if (missing == Missing::kMake && at->second.inode->type == 'd') at->second.layer = layer;
    return at->second.inode;
  }
  if (missing == Missing::kStop) return nullptr;
  if (dir.depth >= max_depth_)
    return fail(ErrorCode::kLimit,
                "directories are nested more than " + std::to_string(max_depth_) + " deep");
  Inode& made = make();
  made.depth = dir.depth + 1;
  add(dir, std::string(name), made, layer);
  return &made;
}

Result<Inode*> ImageTree::walk(const ImagePath& path, std::size_t count, Missing missing, int layer) {
  ++lookups_;
  std::vector<Inode*> above{root_};  // The way down, for "..".
  std::vector<std::string> pending;
  for (std::size_t i = count; i-- > 0;) pending.emplace_back(path[i]);
  int links = 0;
  while (!pending.empty()) {
    const std::string name = std::move(pending.back());
    pending.pop_back();
    if (++steps_ > kFreeSteps + lookups_ * kStepsPerLookup)
      return fail(ErrorCode::kLimit, "the image's symbolic links take too long to follow");
    if (name == "..") {
      if (above.size() > 1) above.pop_back();
      continue;
    }
    DRUPE_ASSIGN(Inode * child, step(*above.back(), name, missing, layer));
    if (child == nullptr) return nullptr;
    if (child->type == 'd') {
      above.push_back(child);
    } else if (child->type == 'l') {
      if (++links > kMaxLinks)
        return fail(ErrorCode::kIntegrity, "too many symbolic links lead to each other");
      if (child->target.starts_with('/')) above.resize(1);
      push_components(pending, child->target);
    } else {
      return fail(ErrorCode::kIntegrity, "a file is used as a directory");
    }
  }
  return above.back();
}

Result<ImageTree::Place> ImageTree::make_place(const ImagePath& path, int layer) {
  if (path.empty()) return Place{.dir = root_};
  DRUPE_ASSIGN(Inode * dir, walk(path, path.size() - 1, Missing::kMake, layer));
  return Place{.dir = dir, .name = std::string(path.back())};
}

ImageTree::Place ImageTree::find_place(const ImagePath& path) {
  if (path.empty()) return {.dir = root_};
  const auto dir = walk(path, path.size() - 1, Missing::kStop, 0);
  return {.dir = dir ? *dir : nullptr, .name = std::string(path.back())};
}

Inode* ImageTree::find(const ImagePath& path) {
  const Place place = find_place(path);
  if (place.dir == nullptr || place.name.empty()) return place.dir;
  const auto at = place.dir->children.find(place.name);
  return at == place.dir->children.end() ? nullptr : at->second.inode;
}

Inode* ImageTree::find_directory(const ImagePath& path) {
  const auto dir = walk(path, path.size(), Missing::kStop, 0);
  return dir ? *dir : nullptr;
}

Inode& ImageTree::put(const Place& place, char type, int layer) {
  if (place.name.empty()) return *root_;
  const auto at = place.dir->children.find(place.name);
  if (at != place.dir->children.end()) {
    Inode& there = *at->second.inode;
    if (type == 'd' && there.type == 'd') {
      at->second.layer = layer;
      return there;
    }
    erase(*place.dir, at);
  }
  Inode& made = make();
  made.type = type;
  made.depth = place.dir->depth + 1;
  add(*place.dir, place.name, made, layer);
  return made;
}

void ImageTree::link(const Place& place, Inode& inode, int layer) {
  const auto at = place.dir->children.find(place.name);
  if (at != place.dir->children.end()) {
    if (at->second.inode == &inode) {
      at->second.layer = layer;
      return;
    }
    // What goes may be the directory that has the only other name of `inode`.
    ++inode.links;
    erase(*place.dir, at);
    --inode.links;
  }
  add(*place.dir, place.name, inode, layer);
}

void ImageTree::remove_lower(const Place& place, int layer) {
  if (place.dir == nullptr) return;
  const auto at = place.dir->children.find(place.name);
  if (at == place.dir->children.end()) return;
  if (at->second.layer < layer) {
    erase(*place.dir, at);
  } else if (at->second.inode->type == 'd') {
    clear_lower(*at->second.inode, layer);
  }
}

// Recursion is as deep as the tree, which is bounded.
void ImageTree::clear_lower(Inode& dir, int layer) {
  // Once is enough, since only this layer's entries come after; a layer of many marks on a large folder is no
  // slower.
  if (std::exchange(dir.cleared, layer) == layer) return;
  for (auto at = dir.children.begin(); at != dir.children.end();) {
    const auto next = std::next(at);
    if (at->second.layer < layer) {
      erase(dir, at);
    } else if (at->second.inode->type == 'd') {
      clear_lower(*at->second.inode, layer);
    }
    at = next;
  }
}

void ImageTree::erase(Inode& dir, Children::iterator at) {
  Inode& inode = *at->second.inode;
  dir.children.erase(at);
  drop(inode);
}

/// Takes one name away from `inode`.
void ImageTree::drop(Inode& inode) {
  --entries_;
  if (--inode.links > 0) return;
  space_.release(inode.blocks);
  for (const auto& [name, entry] : inode.children) drop(*entry.inode);
  inode = Inode();
  unused_.push_back(&inode);
}

}  // namespace drupe
