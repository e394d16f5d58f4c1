// One build of a template, from its Dockerfile to an image.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "api/service/build_log.h"
#include "api/service/rootfs.h"
#include "base/unique_fd.h"
#include "engine/engine.h"
#include "image/dockerfile.h"

namespace drupe::api {

/// How builds are run; the operator's.
struct BuildSettings {
  NetworkOptions network;
  bool host_ca = false;
  std::uint64_t memory_mib = 2048;
  double cpus = 1;
  std::chrono::seconds limit{1800};
  std::vector<std::string> registries;             ///< That FROM may fetch from: "docker.io".
  std::map<std::string, std::string> base_images;  ///< Names that stand for images of the home.
};

/// Ends a build from another thread.
class BuildCancel {
 public:
  static Result<std::unique_ptr<BuildCancel>> create();
  void cancel();
  [[nodiscard]] bool cancelled() const { return flag_; }
  [[nodiscard]] const std::atomic<bool>* flag() const { return &flag_; }
  /// Looks like a client that leaves when cancel() is called.
  [[nodiscard]] int client() const { return mine_.get(); }

 private:
  BuildCancel(UniqueFd mine, UniqueFd others) : mine_(std::move(mine)), others_(std::move(others)) {}
  std::atomic<bool> flag_ = false;
  UniqueFd mine_, others_;
};

/// The image that `from` means to `owner`, without fetching it. kNotFound when it is not here but may be
/// fetched; kInvalidArgument when it may not.
Result<Image> find_base(RootfsCatalogue& rootfs, const BuildSettings& settings, const std::string& owner,
                        const std::string& from);

/// Builds and publishes the image of `row`, whose Dockerfile was parsed to `file`, in a sandbox of the row's
/// id that is gone when this returns. Everything that the author of the Dockerfile should read is in `log`.
/// kCancelled after cancel.
Result<Image> build_template(Engines& engines, RootfsCatalogue& rootfs, const BuildSettings& settings,
                             const TemplateRow& row, const Dockerfile& file, BuildLog& log,
                             const std::function<void()>& on_output, BuildCancel& cancel);

}  // namespace drupe::api
