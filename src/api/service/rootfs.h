// What sandboxes may be made of: the images of the home, those that are being prepared, and the caller's
// templates.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/service/engines.h"
#include "api/store/template_store.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "image/store.h"

namespace drupe::api {

enum class RootfsState : std::uint8_t {
  kReady,
  kPreparing,    ///< It will be ready.
  kFailed,       ///< It was to be prepared, and that failed.
  kNotPrepared,  ///< It could be, by the operator.
};
[[nodiscard]] std::string_view to_string(RootfsState state);

struct RootfsEntry {
  std::string name;
  RootfsState state = RootfsState::kReady;
  std::string detail;  ///< What is being done, or why it failed.
};

/// Callable from any thread.
class RootfsCatalogue {
 public:
  RootfsCatalogue(Engines& engines, TemplateStore& templates) : engines_(engines), templates_(templates) {}
  /// Stops preparing.
  ~RootfsCatalogue();
  RootfsCatalogue(const RootfsCatalogue&) = delete;
  RootfsCatalogue& operator=(const RootfsCatalogue&) = delete;

  /// Makes those of `names` that are not there, one after the other, on a thread of its own: by their
  /// recipes, else from their registries. Once.
  void prepare(std::vector<std::string> names);

  /// The image that a create by `owner` means. One that is being prepared is waited for; kUnavailable when
  /// that takes longer. kInvalidArgument for what is not known, kNotFound for a deleted template,
  /// kInvalidState for one that is not ready.
  Result<Image> resolve(const std::string& owner, const std::string& name, Deadline deadline);
  /// Sorted; without templates.
  Result<std::vector<RootfsEntry>> list();

 private:
  struct Task {
    RootfsState state = RootfsState::kPreparing;
    std::string detail;
  };
  void run(const std::vector<std::string>& names);
  Status make(const std::string& name);
  void note(const std::string& name, RootfsState state, std::string detail);
  Result<std::optional<Image>> own_template(const std::string& owner, const std::string& name);
  Result<Image> find_image(const std::string& owner, const std::string& name);

  Engines& engines_;
  TemplateStore& templates_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Task> tasks_;  ///< Under mutex_: what was not there when this began.
  std::jthread worker_;
};

/// The image is one that some user built; only they may use it.
[[nodiscard]] bool is_template_image(const Image& image);
/// Its name in the image store.
[[nodiscard]] std::string template_image_name(std::string_view template_id);

}  // namespace drupe::api
