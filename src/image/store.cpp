#include "image/store.h"

#include <algorithm>
#include <map>

#include "image/digest.h"
#include "image/store_impl.h"
#include "image/text.h"

namespace drupe {
namespace {

/// Shorter prefixes would make mistyped names mean an image.
constexpr std::size_t kShortestPrefix = 4;
constexpr std::string_view kDigestPrefix = "sha256:";

bool is_id_prefix(std::string_view text) {
  return text.size() >= kShortestPrefix && text.size() <= 64 &&
         std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

std::string familiar(const std::string& canonical) {
  const auto reference = parse_reference(canonical);
  return reference ? reference->familiar() : canonical;
}

std::unexpected<Error> unknown(std::string_view name) {
  return fail(ErrorCode::kNotFound, "There is no image " + shown(name) + " here",
              "'drupe images' lists those that are; 'drupe pull' fetches one.");
}

}  // namespace

Result<std::unique_ptr<ImageStore>> ImageStore::open(const std::string& path) {
  DRUPE_ASSIGN(StoreFiles files, StoreFiles::open(path));
  return std::make_unique<StoreImpl>(std::move(files));
}

Result<StoreImpl::Target> StoreImpl::resolve(std::string_view text) {
  const bool id_only = text.starts_with(kDigestPrefix);
  const std::string_view prefix = id_only ? text.substr(kDigestPrefix.size()) : text;
  auto reference =
      id_only ? Result<Reference>(fail(ErrorCode::kInvalidArgument, shown(text) + " is not an image id"))
              : parse_reference(text);
  if (reference) {
    std::string name = reference->canonical();
    if (auto id = files_.read_name(name)) return Target{*std::move(id), std::move(name)};
  }
  if (is_id_prefix(prefix)) {
    DRUPE_ASSIGN(const auto ids, files_.all_ids());
    const auto first = std::ranges::lower_bound(ids, prefix);
    if (first != ids.end() && first->starts_with(prefix)) {
      const auto next = first + 1;
      if (next != ids.end() && next->starts_with(prefix))
        return fail(ErrorCode::kInvalidArgument,
                    "The id " + shown(text) + " is the beginning of several images' ids", "Give more of it.");
      return Target{*first, {}};
    }
  } else if (!reference) {
    return std::unexpected(std::move(reference).error());
  }
  return unknown(text);
}

Result<Image> StoreImpl::image_of(const Target& target) {
  auto image = files_.read_image(target.id);
  // The image went between two looks.
  if (!image && image.error().code == ErrorCode::kNotFound)
    return unknown(target.name.empty() ? target.id : familiar(target.name));
  if (image && !target.name.empty()) image->names = {familiar(target.name)};
  return image;
}

Result<Image> StoreImpl::find(std::string_view name_or_id) {
  DRUPE_ASSIGN(const Target target, resolve(name_or_id));
  return image_of(target);
}

Result<std::vector<std::string>> StoreImpl::names_of(const std::string& id) {
  DRUPE_ASSIGN(const auto names, files_.all_names());
  std::vector<std::string> own;
  for (const auto& [name, owner] : names)
    if (owner == id) own.push_back(name);
  return own;
}

Result<std::vector<Image>> StoreImpl::list() {
  DRUPE_ASSIGN(const auto names, files_.all_names());
  DRUPE_ASSIGN(const auto ids, files_.all_ids());
  std::map<std::string, std::vector<std::string>> names_by_id;
  for (const auto& [name, id] : names) names_by_id[id].push_back(familiar(name));
  std::vector<Image> images;
  for (const std::string& id : ids) {
    auto image = files_.read_image(id);
    if (!image && image.error().code == ErrorCode::kNotFound) continue;
    if (!image)
      return std::unexpected(
          std::move(image).error().in("The image " + id.substr(0, 12) + " cannot be used"));
    image->names = std::move(names_by_id[id]);
    std::ranges::sort(image->names);
    images.push_back(*std::move(image));
  }
  std::ranges::sort(images, [](const Image& a, const Image& b) {
    return a.created != b.created ? a.created > b.created : a.id < b.id;
  });
  return images;
}

Status StoreImpl::tag(std::string_view source, std::string_view target) {
  DRUPE_ASSIGN(const Reference reference, parse_reference(target));
  if (!reference.digest.empty())
    return fail(ErrorCode::kInvalidArgument,
                "A name that is given to an image has a tag, not a digest: " + shown(target));
  DRUPE_TRY(files_.prepare());
  DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
  DRUPE_ASSIGN(const Target found, resolve(source));
  if (!files_.has_image(found.id)) return unknown(source);
  return files_.write_name(reference.canonical(), found.id);
}

Result<RemovedImage> StoreImpl::remove(std::string_view name_or_id, bool force) {
  DRUPE_TRY(files_.prepare());
  RemovedImage removed;
  std::string retired;
  {
    DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
    files_.sweep();
    DRUPE_ASSIGN(const Target target, resolve(name_or_id));
    DRUPE_ASSIGN(std::vector<std::string> names, names_of(target.id));
    const std::size_t all = names.size();
    if (!target.name.empty()) {
      names = {target.name};
    } else if (all > 1 && !force) {
      return fail(ErrorCode::kInvalidState,
                  "The image " + target.id.substr(0, 12) + " has " + std::to_string(all) + " names",
                  "Remove them one by one, or all of them with --force.");
    }
    for (const std::string& name : names) {
      DRUPE_TRY(files_.remove_name(name));
      removed.names.push_back(familiar(name));
    }
    if (names.size() >= all) {
      if (files_.has_image(target.id)) {
        DRUPE_ASSIGN(retired, files_.retire(target.id));
      }
      removed.deleted_id = target.id;
    }
  }
  // The bytes go after the lock: that takes time, and a process that is killed here leaves them to the next
  // sweep.
  if (!retired.empty()) DRUPE_TRY(remove_tree(files_.dir(), retired));
  return removed;
}

}  // namespace drupe
