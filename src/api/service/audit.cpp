#include "api/service/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/json/writer.h"
#include "api/service/ids.h"
#include "base/files.h"
#include "base/log.h"

namespace drupe::api {
namespace {

constexpr const char* kName = "audit.log";
constexpr int kOlder = 4;
constexpr std::size_t kMostObject = 128;

std::string older(int age) {
  return std::string(kName) + "." + std::to_string(age);
}

}  // namespace

Result<std::unique_ptr<Audit>> Audit::open(UniqueFd directory, std::uint64_t most_bytes) {
  std::unique_ptr<Audit> audit(new Audit(std::move(directory), most_bytes));
  if (most_bytes != 0) {
    const std::scoped_lock lock(audit->mutex_);
    DRUPE_TRY(audit->open_file());
  }
  return audit;
}

Status Audit::open_file() {
  DRUPE_ASSIGN(file_, open_at(directory_.get(), kName, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW));
  struct stat info{};
  if (::fstat(file_.get(), &info) != 0) return fail_sys("Looking at the audit log failed", errno);
  length_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

void Audit::rotate() {
  const int dir = directory_.get();
  for (int age = kOlder; age > 1; --age) ::renameat(dir, older(age - 1).c_str(), dir, older(age).c_str());
  ::renameat(dir, kName, dir, older(1).c_str());
}

Status Audit::append(const std::string& line) {
  if (length_ != 0 && length_ + line.size() > most_bytes_) {
    rotate();
    DRUPE_TRY(open_file());
  }
  DRUPE_TRY(write_all(file_.get(), line));
  length_ += line.size();
  return {};
}

void Audit::write(const AuditEntry& entry) {
  if (most_bytes_ == 0) return;
  JsonWriter json;
  json.begin_object().field("time", timestamp(now_ns()));
  const auto add = [&json](std::string_view name, std::string_view value) {
    if (!value.empty()) json.field(name, value);
  };
  add("request_id", entry.request_id);
  add("client", entry.client);
  add("user_id", entry.user_id);
  add("user", entry.user);
  add("by", entry.by);
  add("action", entry.action);
  add("object", entry.object.substr(0, kMostObject));
  if (entry.status != 0) json.field("status", entry.status);
  const std::string line = json.end_object().take() + "\n";
  const std::scoped_lock lock(mutex_);
  if (auto written = append(line); !written)
    log(LogLevel::kError, "The audit log cannot be written: " + written.error().message);
}

}  // namespace drupe::api
