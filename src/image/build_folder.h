// A temporary folder for a program that fills it with files of other owners, and that may be killed in the
// middle.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

/// "drupe-build.XXXXXX" in $TMPDIR, else /tmp; removed with everything in it when this goes. Making one
/// removes those that killed programs have left: nobody holds their locks any more.
class BuildFolder {
 public:
  static Result<BuildFolder> make();
  ~BuildFolder();
  BuildFolder(BuildFolder&&) noexcept = default;
  BuildFolder& operator=(BuildFolder&&) = delete;
  BuildFolder(const BuildFolder&) = delete;
  BuildFolder& operator=(const BuildFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Its lock. A child that inherits it keeps the folder in use although this process is gone.
  [[nodiscard]] int lock() const { return lock_.get(); }

 private:
  BuildFolder(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  UniqueFd lock_;
};

/// Removes the tree `path`. Files that only the owners of an unprivileged build may touch go through
/// mmdebstrap's helper.
void remove_build(const std::string& path);

}  // namespace drupe
