// Templates: what druped knows of images that users build.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/store/sqlite.h"
#include "base/result.h"

namespace drupe::api {

enum class TemplateStatus : std::uint8_t { kPending, kBuilding, kReady, kFailed };
[[nodiscard]] std::string_view to_string(TemplateStatus status);

struct TemplateRow {
  std::string id;  ///< "tpl_" and 26 characters; also its name in the engine while it is built.
  std::string owner;
  std::string name;  ///< Unique among the owner's that are there and did not fail.
  std::string base;  ///< Image that it is built on, as the user wrote it.
  std::string dockerfile;
  TemplateStatus status = TemplateStatus::kPending;
  std::string image_id;        ///< Once it is ready.
  std::int64_t ext4_size = 0;  ///< Bytes that its disk takes up; 0 before.
  std::int64_t created_ns = 0;
  std::optional<std::int64_t> built_ns;  ///< When it became ready or failed.
  bool deleted = false;                  ///< Kept, so that a create can tell a deleted one from none.
  std::string error;                     ///< A sentence, when it failed.
};

/// In the same file as the rest of the store, through a connection of its own. Callable from any thread.
class TemplateStore {
 public:
  static Result<std::unique_ptr<TemplateStore>> open(const std::string& path);

  /// kAlreadyExists when the owner has one of that name that is there and has not failed.
  Status add(const TemplateRow& row);
  /// Replaces everything that a build changes; kNotFound when it is not there any more.
  Status update(const TemplateRow& row);
  Status drop(std::string_view id);
  /// Newest first, deleted ones too; of one owner, or of all when it is empty.
  Result<std::vector<TemplateRow>> list(std::string_view owner);
  /// Whose image this is, deleted or not.
  Result<std::optional<TemplateRow>> of_image(std::string_view image_id);

 private:
  explicit TemplateStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  std::mutex mutex_;
  std::unique_ptr<Database> database_;  ///< Under mutex_.
};

}  // namespace drupe::api
