#include "api/service/rootfs.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "image/debian.h"

namespace drupe::api {
namespace {

constexpr std::array kStates{"ready", "preparing", "failed", "not_prepared"};
/// No registry has this name, now or ever.
constexpr std::string_view kTemplates = "templates.drupe.internal/";

bool has_recipe(const std::string& name) {
  const auto recipes = debian_recipes();
  return std::ranges::find(recipes, name) != recipes.end();
}

std::unexpected<Error> unknown(const std::string& name) {
  return fail(ErrorCode::kInvalidArgument,
              "rootfs \"" + name + "\" is not known here; GET /v1/rootfs lists what is");
}

}  // namespace

std::string_view to_string(RootfsState state) {
  return kStates.at(static_cast<std::size_t>(state));
}

bool is_template_image(const Image& image) {
  return std::ranges::any_of(image.names,
                             [](const std::string& name) { return name.starts_with(kTemplates); });
}

std::string template_image_name(std::string_view template_id) {
  // Letters and digits behind "tpl_" are what a name in a registry may have.
  return std::string(kTemplates) + std::string(template_id.substr(template_id.find('_') + 1)) + ":1";
}

RootfsCatalogue::~RootfsCatalogue() {
  stop_ = true;
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void RootfsCatalogue::prepare(std::vector<std::string> names) {
  std::vector<std::string> missing;
  const auto engine = engines_.lease();
  if (!engine) return log(LogLevel::kError, "No image is prepared: " + engine.error().message);
  const auto images = (*engine)->images();
  if (!images) return log(LogLevel::kError, "No image is prepared: " + images.error().message);
  for (std::string& name : names)
    if (!(*images)->find(name)) missing.push_back(std::move(name));
  if (missing.empty()) return;
  {
    const std::scoped_lock lock(mutex_);
    for (const std::string& name : missing) tasks_[name] = {RootfsState::kPreparing, "waiting"};
  }
  worker_ = std::jthread([this, missing = std::move(missing)] { run(missing); });
}

void RootfsCatalogue::note(const std::string& name, RootfsState state, std::string detail) {
  const std::scoped_lock lock(mutex_);
  tasks_[name] = {state, std::move(detail)};
  changed_.notify_all();
}

void RootfsCatalogue::run(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (stop_) return;
    log(LogLevel::kInfo, "Preparing the image " + name);
    if (const auto made = make(name)) {
      log(LogLevel::kInfo, "The image " + name + " is ready");
      note(name, RootfsState::kReady, "");
    } else if (!stop_) {
      log(LogLevel::kError, "The image " + name + " could not be prepared: " + to_string(made.error()));
      note(name, RootfsState::kFailed, made.error().message);
    }
  }
}

Status RootfsCatalogue::make(const std::string& name) {
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(ImageStore* const images, engine->images());
  const auto show = [&](const Progress& progress) { note(name, RootfsState::kPreparing, progress.what); };
  if (has_recipe(name)) {
    DRUPE_TRY(images->build_debian(name, {show, &stop_}));
    return {};
  }
  PullOptions options;
  options.on_progress = show;
  options.cancel = &stop_;
  DRUPE_TRY(images->pull(name, options));
  return {};
}

Result<std::optional<Image>> RootfsCatalogue::own_template(const std::string& owner,
                                                           const std::string& name) {
  DRUPE_ASSIGN(const auto rows, templates_.list(owner));
  bool deleted = false;
  for (const TemplateRow& row : rows) {
    if (row.id != name && row.name != name) continue;
    if (row.deleted) {
      deleted = true;
      continue;
    }
    if (row.status != TemplateStatus::kReady)
      return fail(ErrorCode::kInvalidState,
                  "template \"" + row.name + "\" is " + std::string(to_string(row.status)));
    DRUPE_ASSIGN(const auto engine, engines_.lease());
    DRUPE_ASSIGN(ImageStore* const images, engine->images());
    DRUPE_ASSIGN(Image image, images->find("sha256:" + row.image_id));
    return image;
  }
  // A name may also be an image's, an id may not.
  if (deleted) return fail(ErrorCode::kNotFound, "template \"" + name + "\" was deleted: not found");
  return std::nullopt;
}

Result<Image> RootfsCatalogue::find_image(const std::string& owner, const std::string& name) {
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(ImageStore* const images, engine->images());
  DRUPE_ASSIGN(Image image, images->find(name));
  // By the id of its image, or the beginning of that, a template can be named by whoever guesses it.
  DRUPE_ASSIGN(const auto row, templates_.of_image(image.id));
  if ((row && row->owner != owner) || (!row && is_template_image(image)))
    return fail(ErrorCode::kNotFound, "not found");
  return image;
}

Result<Image> RootfsCatalogue::resolve(const std::string& owner, const std::string& name, Deadline deadline) {
  DRUPE_ASSIGN(auto own, own_template(owner, name));
  if (own) return *std::move(own);
  {
    std::unique_lock lock(mutex_);
    const auto task = tasks_.find(name);
    if (task != tasks_.end()) {
      changed_.wait_until(lock, deadline,
                          [&] { return stop_ || task->second.state != RootfsState::kPreparing; });
      if (task->second.state == RootfsState::kPreparing)
        return fail(ErrorCode::kUnavailable, "rootfs \"" + name + "\" is still being prepared (" +
                                                 task->second.detail + "); try again in some minutes");
    }
  }
  auto image = find_image(owner, name);
  if (image) return image;
  if (image.error().code != ErrorCode::kNotFound && image.error().code != ErrorCode::kInvalidArgument)
    return image;
  const std::scoped_lock lock(mutex_);
  if (const auto task = tasks_.find(name); task != tasks_.end() && task->second.state == RootfsState::kFailed)
    return fail(ErrorCode::kUnavailable,
                "rootfs \"" + name + "\" could not be prepared: " + task->second.detail);
  if (has_recipe(name))
    return fail(
        ErrorCode::kInvalidArgument,
        "rootfs \"" + name + "\" has not been prepared here; its operator can do that (images.prepare)");
  return unknown(name);
}

Result<std::vector<RootfsEntry>> RootfsCatalogue::list() {
  std::map<std::string, RootfsEntry> entries;
  for (const std::string& name : debian_recipes()) entries[name] = {name, RootfsState::kNotPrepared, ""};
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [name, task] : tasks_) entries[name] = {name, task.state, task.detail};
  }
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(ImageStore* const images, engine->images());
  DRUPE_ASSIGN(const auto all, images->list());
  for (const Image& image : all)
    for (const std::string& name : image.names)
      if (!name.starts_with(kTemplates)) entries[name] = {name, RootfsState::kReady, ""};
  std::vector<RootfsEntry> out;
  for (auto& [name, entry] : entries) {
    // Removed again by the operator.
    if (entry.state == RootfsState::kReady && entry.detail.empty() &&
        std::ranges::none_of(all, [&](const Image& image) {
          return std::ranges::find(image.names, name) != image.names.end();
        }))
      entry.state = RootfsState::kNotPrepared;
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace drupe::api
