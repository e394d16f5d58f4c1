#include "api/service/templates.h"

#include <algorithm>
#include <ranges>

#include "api/service/ids.h"
#include "base/log.h"
#include "engine/home.h"
#include "engine/image_bases.h"

namespace drupe::api {
namespace {

constexpr std::size_t kBuildsOfUser = 2;
constexpr const char* kInterrupted = "the server ended during the build";

std::unexpected<Error> not_found() {
  return fail(ErrorCode::kNotFound, "template not found");
}

bool is_over(const TemplateRow& row) {
  return row.status == TemplateStatus::kReady || row.status == TemplateStatus::kFailed;
}

}  // namespace

Templates::Templates(TemplateSettings settings, TemplateStore& store, Engines& engines,
                     RootfsCatalogue& rootfs, Sandboxes& sandboxes)
    : settings_(std::move(settings)),
      store_(store),
      engines_(engines),
      rootfs_(rootfs),
      sandboxes_(sandboxes) {}

Templates::~Templates() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (auto& [id, job] : jobs_) job.cancel->cancel();
  }
  work_.notify_all();
  news_.notify_all();
  workers_.clear();
}

void Templates::start() {
  for (std::size_t i = 0; i < settings_.builds; ++i) workers_.emplace_back([this] { work(); });
}

Status Templates::reconcile() {
  DRUPE_ASSIGN(const auto rows, store_.list(""));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  for (const TemplateRow& row : rows) {
    if (row.deleted && row.image_id.empty() && is_over(row)) continue;
    // A build's sandbox has its template's id as its name.
    if (!is_over(row))
      if (const auto left = engine->find(row.id)) DRUPE_TRY(engine->remove(left->record.id, true));
    if (row.deleted || !is_over(row)) DRUPE_TRY(remove_image(row));
    if (is_over(row)) continue;
    TemplateRow failed = row;
    failed.status = TemplateStatus::kFailed;
    failed.built_ns = now_ns();
    failed.error = kInterrupted;
    DRUPE_TRY(store_.update(failed));
  }
  return {};
}

Result<TemplateRow> Templates::create(const std::string& owner, const NewTemplate& request) {
  DRUPE_TRY(check_name_word(request.name));
  DRUPE_TRY(sandboxes_.check_isolation());
  DRUPE_ASSIGN(const Dockerfile file, parse_dockerfile(request.dockerfile));
  TemplateRow row;
  row.base = request.base.empty() ? file.from : request.base;
  if (const auto base = find_base(rootfs_, settings_.build, owner, row.base); base) {
    DRUPE_TRY(plan_build(file, base->config));
  } else if (base.error().code == ErrorCode::kNotFound || base.error().code == ErrorCode::kUnavailable) {
    DRUPE_TRY(plan_build(file, {}));  // what is wrong with it is told now all the same
  } else {
    return std::unexpected(base.error());
  }
  const std::scoped_lock one_at_a_time(creating_);
  DRUPE_ASSIGN(const auto rows, list(owner));
  for (const TemplateRow& other : rows)
    if (other.name == request.name && other.status != TemplateStatus::kFailed)
      return fail(ErrorCode::kAlreadyExists,
                  "a template with the name \"" + request.name + "\" already exists");
  // One that has failed makes room for another try.
  for (const TemplateRow& other : rows)
    if (other.name == request.name) DRUPE_TRY(remove(owner, other.id));
  const auto there = static_cast<std::size_t>(
      std::ranges::count_if(rows, [&](const TemplateRow& other) { return other.name != request.name; }));
  if (settings_.most_of_user != 0 && there >= settings_.most_of_user)
    return fail(ErrorCode::kPermission, "more than " + std::to_string(settings_.most_of_user) +
                                            " templates are not allowed; delete some");
  row.id = make_id("tpl_");
  row.owner = owner;
  row.name = request.name;
  row.dockerfile = request.dockerfile;
  row.created_ns = now_ns();
  DRUPE_ASSIGN(std::shared_ptr<BuildCancel> cancel, BuildCancel::create());
  DRUPE_TRY(store_.add(row));
  {
    const std::scoped_lock lock(mutex_);
    jobs_[row.id] = {row, std::move(cancel), false};
  }
  work_.notify_one();
  return row;
}

Result<std::vector<TemplateRow>> Templates::list(const std::string& owner) {
  DRUPE_ASSIGN(auto rows, store_.list(owner));
  std::erase_if(rows, [](const TemplateRow& row) { return row.deleted; });
  return rows;
}

Result<TemplateRow> Templates::find(const std::string& owner, const std::string& id_or_name) {
  DRUPE_ASSIGN(auto rows, list(owner));
  for (TemplateRow& row : rows)
    if (row.id == id_or_name || row.name == id_or_name) return std::move(row);
  return not_found();
}

Status Templates::remove(const std::string& owner, const std::string& id_or_name) {
  DRUPE_ASSIGN(TemplateRow row, find(owner, id_or_name));
  {
    const std::scoped_lock lock(mutex_);
    row.deleted = true;
    DRUPE_TRY(store_.update(row));
    if (const auto job = jobs_.find(row.id); job != jobs_.end()) {
      job->second.cancel->cancel();
      job->second.row.deleted = true;
      // A running one removes what it has made by itself.
      if (job->second.running) return {};
      jobs_.erase(job);
    }
  }
  tell(row.id);
  remove_build_log(settings_.log_folder, row.id);
  DRUPE_TRY(remove_image(row));
  // Only a create of a template that was once ready has to be told that it is gone.
  if (row.status != TemplateStatus::kReady) return store_.drop(row.id);
  row.image_id.clear();
  return store_.update(row);
}

Status Templates::remove_image(const TemplateRow& row) {
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(ImageStore* const images, engine->images());
  const auto removed = images->remove(template_image_name(row.id));
  if (!removed && removed.error().code != ErrorCode::kNotFound) return std::unexpected(removed.error());
  if (row.image_id.empty()) return {};
  DRUPE_ASSIGN(const Home home, Home::open(engine->home()));
  return remove_bases_of(home, row.image_id);
}

void Templates::tell(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  if (jobs_.contains(id)) ++told_[id];
  news_.notify_all();
}

std::uint64_t Templates::wait_for_news(const std::string& id, std::uint64_t seen, Deadline deadline) {
  std::unique_lock lock(mutex_);
  news_.wait_until(lock, deadline, [&] {
    const auto told = told_.find(id);
    return stop_ || !jobs_.contains(id) || (told != told_.end() && told->second != seen);
  });
  const auto told = told_.find(id);
  return told == told_.end() ? 0 : told->second;
}

Result<std::string> Templates::ended_as(const TemplateRow& row) {
  {
    const std::scoped_lock lock(mutex_);
    const auto job = jobs_.find(row.id);
    if (job != jobs_.end()) return std::string(job->second.row.deleted ? "cancelled" : "");
  }
  DRUPE_ASSIGN(const auto rows, store_.list(row.owner));
  const auto found = std::ranges::find(rows, row.id, &TemplateRow::id);
  if (found == rows.end() || found->deleted) return std::string("cancelled");
  return is_over(*found) ? std::string(to_string(found->status)) : std::string("failed");
}

std::string Templates::next_job() const {
  for (const auto& [id, job] : jobs_) {
    if (job.running) continue;
    const auto of_same = std::ranges::count_if(jobs_ | std::views::values, [&](const Job& other) {
      return other.running && other.row.owner == job.row.owner;
    });
    if (static_cast<std::size_t>(of_same) < kBuildsOfUser) return id;
  }
  return {};
}

void Templates::work() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stop_ || !next_job().empty(); });
      if (stop_) return;
      Job& next = jobs_.at(next_job());
      next.running = true;
      job = next;
    }
    build(std::move(job));
    work_.notify_all();
  }
}

void Templates::build(Job job) {
  TemplateRow row = std::move(job.row);
  auto log = BuildLog::create(settings_.log_folder, row.id);
  const auto made = [&]() -> Result<Image> {
    if (!log) return std::unexpected(log.error());
    row.status = TemplateStatus::kBuilding;
    {
      const std::scoped_lock lock(mutex_);
      if (jobs_.at(row.id).row.deleted) return fail(ErrorCode::kCancelled, "the build was cancelled");
      DRUPE_TRY(store_.update(row));
    }
    tell(row.id);
    DRUPE_ASSIGN(const Dockerfile file, parse_dockerfile(row.dockerfile));
    return build_template(
        engines_, rootfs_, settings_.build, row, file, *log, [this, &row] { tell(row.id); }, *job.cancel);
  }();
  finish(std::move(row), made, log ? &*log : nullptr);
}

void Templates::finish(TemplateRow row, const Result<Image>& image, BuildLog* log) {
  row.built_ns = now_ns();
  row.status = image ? TemplateStatus::kReady : TemplateStatus::kFailed;
  if (image) {
    row.image_id = image->id;
    row.ext4_size = static_cast<std::int64_t>(image->disk_bytes);
  } else {
    row.error = image.error().message;
  }
  bool deleted = false;
  Status kept;
  {
    const std::scoped_lock lock(mutex_);
    deleted = jobs_.at(row.id).row.deleted;
    if (!image && stop_ && !deleted) row.error = kInterrupted;
    if (log != nullptr) log->say(image ? "The template is ready" : "Failed: " + row.error);
    kept = deleted ? store_.drop(row.id) : store_.update(row);
    jobs_.erase(row.id);
    told_.erase(row.id);
    news_.notify_all();
  }
  if (deleted) {
    remove_build_log(settings_.log_folder, row.id);
    if (auto removed = remove_image(row); !removed && kept) kept = std::move(removed);
  }
  if (!kept) drupe::log(LogLevel::kError, "The end of a build could not be kept: " + kept.error().message);
}

}  // namespace drupe::api
