// The file tree that layers add up to, in memory: names, links and metadata, no file data. Paths are resolved
// as a kernel would resolve them with the image as its root, so nothing in an image can point out of it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/disk_space.h"

namespace drupe {

struct Inode;

/// A name in a directory. `layer` is the last layer that mentioned it: whiteouts of a layer act on lower ones
/// only.
struct DirEntry {
  Inode* inode = nullptr;
  int layer = 0;
};

/// A file, directory, link or device. Owned by its tree.
struct Inode {
  char type = 'd';  ///< f d l c b p, as in TarEntry.
  std::uint32_t mode = 0755, uid = 0, gid = 0;
  std::int64_t mtime_ns = 0;
  std::uint32_t links = 0;   ///< Names that lead here; 1 for a directory.
  std::uint32_t depth = 0;   ///< Of a directory; the root's is 0.
  int cleared = 0;           ///< The last layer that has hidden all lower entries of this directory.
  std::uint32_t number = 0;  ///< In the file system; set when the tree is written.
  bool written = false;      ///< Under another of its names.
  std::uint64_t size = 0;
  std::uint32_t device_major = 0, device_minor = 0;
  std::string target{};                         ///< Of a symbolic link.
  std::map<std::string, std::string> xattrs{};  ///< Already filtered and bounded.
  std::vector<BlockRange> blocks{};             ///< Ascending, holes left out.
  std::map<std::string, DirEntry, std::less<>> children{};
};

using ImagePath = std::vector<std::string_view>;

/// Components of a name in a layer, which is borrowed. A leading '/', "." and empty components are dropped;
/// ".." is refused. An empty result is the root.
Result<ImagePath> split_image_path(std::string_view path);

/// One thread. Blocks of what is removed go back to `space`, which is borrowed and outlives the tree.
class ImageTree {
 public:
  ImageTree(DiskSpace& space, std::uint32_t max_depth);
  ImageTree(const ImageTree&) = delete;
  ImageTree& operator=(const ImageTree&) = delete;

  /// Where an entry goes: its directory and its name there. An empty name means the root itself.
  struct Place {
    Inode* dir = nullptr;
    std::string name{};
  };

  /// Finds the directory of `path`, following links on the way inside the image: 40 at most, and ".." of a
  /// link's target stops at the root. Missing parents are made (0755, root's); all are marked as mentioned by
  /// `layer`. kIntegrity when a parent is no directory, kLimit beyond the depth.
  Result<Place> make_place(const ImagePath& path, int layer);
  /// make_place() that makes and marks nothing; a null directory when there is none.
  [[nodiscard]] Place find_place(const ImagePath& path);
  /// The inode at `path`, following links on the way but not at its end; null when there is none.
  [[nodiscard]] Inode* find(const ImagePath& path);
  /// The directory at `path`, following links also at its end; null when there is none.
  [[nodiscard]] Inode* find_directory(const ImagePath& path);

  [[nodiscard]] Inode& root() { return *root_; }
  /// Puts a new, empty inode of `type` at `place`. What was there goes, unless both are directories: then
  /// that one is kept with its children.
  Inode& put(const Place& place, char type, int layer);
  /// Adds a name for `inode`, which is not a directory; what was at `place` goes.
  void link(const Place& place, Inode& inode, int layer);
  /// Removes what layers below `layer` have put at `place`; what `layer` itself put there stays.
  void remove_lower(const Place& place, int layer);
  /// Removes what layers below `layer` have put into `dir`.
  void clear_lower(Inode& dir, int layer);

  /// Names in the tree; the root has none.
  [[nodiscard]] std::uint64_t entries() const { return entries_; }

 private:
  using Children = std::map<std::string, DirEntry, std::less<>>;
  enum class Missing : bool { kStop, kMake };

  Result<Inode*> walk(const ImagePath& path, std::size_t count, Missing missing, int layer);
  Result<Inode*> step(Inode& dir, std::string_view name, Missing missing, int layer);
  Inode& make();
  void add(Inode& dir, const std::string& name, Inode& inode, int layer);
  void erase(Inode& dir, Children::iterator at);
  void drop(Inode& inode);

  DiskSpace& space_;
  std::uint32_t max_depth_;
  // A pool, because several names may share an inode; addresses never change.
  std::deque<Inode> pool_;
  std::vector<Inode*> unused_;
  Inode* root_;
  std::uint64_t entries_ = 0;
  std::uint64_t steps_ = 0, lookups_ = 0;
};

}  // namespace drupe
