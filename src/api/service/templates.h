// Images that users build: templates. Builds run in sandboxes, on threads of their own.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/service/sandboxes.h"
#include "api/service/template_build.h"
#include "api/store/template_store.h"
#include "base/result.h"

namespace drupe::api {

struct TemplateSettings {
  std::string log_folder;         ///< Absolute.
  std::size_t most_of_user = 20;  ///< Templates that are there; 0: no bound.
  std::size_t builds = 4;         ///< At once, of all users; two of one user.
  BuildSettings build;
};

struct NewTemplate {
  std::string name, dockerfile;
  std::string base;  ///< In place of the image that FROM names; may be empty.
};

/// Callable from any thread. What is not the caller's is kNotFound.
class Templates {
 public:
  Templates(TemplateSettings settings, TemplateStore& store, Engines& engines, RootfsCatalogue& rootfs,
            Sandboxes& sandboxes);
  /// Ends the builds; what they were at is failed.
  ~Templates();
  Templates(const Templates&) = delete;
  Templates& operator=(const Templates&) = delete;

  /// Builds that a process which is gone was at have failed; what they left is removed. Before start().
  Status reconcile();
  /// From here on builds are run.
  void start();

  /// kInvalidArgument, with the line, for a Dockerfile that cannot be built here; kAlreadyExists;
  /// kPermission above the bound.
  Result<TemplateRow> create(const std::string& owner, const NewTemplate& request);
  /// Newest first.
  Result<std::vector<TemplateRow>> list(const std::string& owner);
  Result<TemplateRow> find(const std::string& owner, const std::string& id_or_name);
  /// Ends its build. Sandboxes that were made of it live on.
  Status remove(const std::string& owner, const std::string& id_or_name);

  /// What its build has said from byte `from` on.
  Result<BuildLogPart> log(const TemplateRow& row, std::uint64_t from) {
    return read_build_log(settings_.log_folder, row.id, from);
  }
  /// Returns when the log may have grown or the build ended after `seen`, or at the deadline; what to pass
  /// as `seen` the next time.
  std::uint64_t wait_for_news(const std::string& id, std::uint64_t seen, Deadline deadline);
  /// "ready", "failed" or "cancelled"; nothing while it is being built.
  Result<std::string> ended_as(const TemplateRow& row);

 private:
  struct Job {
    TemplateRow row;
    std::shared_ptr<BuildCancel> cancel;
    bool running = false;
  };
  void work();
  /// Under mutex_; the id of the next job that may run.
  std::string next_job() const;
  void build(Job job);
  void finish(TemplateRow row, const Result<Image>& image, BuildLog* log);
  Status remove_image(const TemplateRow& row);
  void tell(const std::string& id);

  TemplateSettings settings_;
  TemplateStore& store_;
  Engines& engines_;
  RootfsCatalogue& rootfs_;
  Sandboxes& sandboxes_;

  std::mutex creating_;  ///< One create at a time: the bound and the name hold.
  std::mutex mutex_;
  std::condition_variable work_, news_;
  bool stop_ = false;                          ///< Under mutex_.
  std::map<std::string, Job> jobs_;            ///< Under mutex_, by id, which is their order.
  std::map<std::string, std::uint64_t> told_;  ///< Under mutex_: how often there was news of a build.
  std::vector<std::jthread> workers_;
};

}  // namespace drupe::api
