// The files of an image store, and what keeps processes out of each other's way there.
//
//   names/<name>      symbolic link whose text is an id; '/' in the canonical name is written '+'
//   disks/<id>/       image.json and disk.ext4: appear complete by a rename, never change, go by a rename
//   blobs/<digest>    layers on their way in; locked while they are used, kept for a day after a break
//   locks/            lock, for short changes; others for long work that should be done once
//   tmp/              scratch directories, locked by those who use them
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "image/progress.h"
#include "image/store.h"

namespace drupe {

inline constexpr const char* kDiskFile = "disk.ext4";

/// Thread-safe: holds only a directory descriptor.
class StoreFiles {
 public:
  static Result<StoreFiles> open(const std::string& path);
  [[nodiscard]] DirFd dir() const { return dir_.get(); }

  /// Makes the folders; needed before anything is written.
  Status prepare() const;
  /// The lock for short changes: names, publishing, removal, sweeping.
  Result<UniqueFd> lock() const;
  /// A lock for long work called `name`; says through `on_wait` (may be empty) that it has to wait.
  /// kCancelled by `cancel`.
  Result<UniqueFd> lock_work(const std::string& name, CancelFlag cancel,
                             const std::function<void()>& on_wait) const;
  /// Gives it up, and its file too.
  void unlock_work(const std::string& name, UniqueFd lock) const;

  // Names are canonical references. The writing ones need the store's lock.
  [[nodiscard]] std::optional<std::string> read_name(const std::string& name) const;
  Status write_name(const std::string& name, const std::string& id) const;
  Status remove_name(const std::string& name) const;
  /// (name, id), sorted by name.
  [[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> all_names() const;

  [[nodiscard]] Result<std::vector<std::string>> all_ids() const;
  [[nodiscard]] bool has_image(const std::string& id) const;
  /// Without names. kNotFound when it is not there.
  Result<Image> read_image(const std::string& id) const;

  /// A directory in tmp/ that only this process uses while it holds `lock`.
  struct Scratch {
    std::string path;  ///< Below the store.
    UniqueFd dir;      ///< Of the directory; it is locked.
  };
  Result<Scratch> make_scratch() const;
  void discard(Scratch scratch) const;
  /// Writes image.json beside the disk in `scratch`, syncs both and moves the directory to its place. Needs
  /// the store's lock. When the image is there already the scratch is given up.
  Status publish(Scratch scratch, const Image& image) const;
  /// Moves an image out of sight; returns the path that remove_tree() should be called with after the lock.
  /// Needs the store's lock.
  Result<std::string> retire(const std::string& id) const;

  /// Opens blobs/<digest>, waiting while another process writes it. The lock is exclusive, or shared when
  /// another process reads the complete blob.
  Result<UniqueFd> open_blob(const std::string& digest, std::uint64_t size, CancelFlag cancel,
                             const std::function<void()>& on_wait) const;
  /// Lets others read it too.
  static void share_blob(int fd);
  [[nodiscard]] bool is_empty_blob(const std::string& digest) const;
  void drop_blob(const std::string& digest) const;

  /// Removes what killed processes left behind. Needs the store's lock.
  void sweep() const;

 private:
  StoreFiles(UniqueFd dir, std::string path) : dir_(std::move(dir)), path_(std::move(path)) {}
  UniqueFd dir_;
  std::string path_;
};

/// Names in a folder, sorted, without those that begin with a dot; none when it is missing.
[[nodiscard]] Result<std::vector<std::string>> list_folder(DirFd dir, const std::string& path);

/// image.json.
[[nodiscard]] std::string encode_image_record(const Image& image);
/// kIntegrity when it is damaged. Leaves names and disk_path empty.
Result<Image> decode_image_record(std::string_view text);

}  // namespace drupe
