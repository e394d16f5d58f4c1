#include "api/service/template_build.h"

#include <algorithm>
#include <charconv>
#include <csignal>

#include <sys/socket.h>

#include "api/service/guest_command.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/commit.h"
#include "image/reference.h"
#include "image/store.h"
#include "shim/client.h"

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kStopGrace{5};
/// A base image that is being prepared is waited for.
constexpr std::chrono::minutes kPrepareWait{30};

std::unexpected<Error> left() {
  return fail(ErrorCode::kCancelled, "the build was cancelled");
}

std::string mapped(const BuildSettings& settings, const std::string& from) {
  const auto found = settings.base_images.find(from);
  return found == settings.base_images.end() ? from : found->second;
}

/// "12:34" as the numbers of a file's owner.
void set_owner(FileOptions& file, const std::string& owner) {
  if (owner.empty()) return;
  const auto number = [](std::string_view text) {
    std::int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const auto colon = owner.find(':');
  file.uid = number(std::string_view(owner).substr(0, colon));
  file.gid = colon == std::string::npos ? file.uid : number(std::string_view(owner).substr(colon + 1));
}

class Build {
 public:
  Build(const BuildSettings& settings, Engine& engine, BuildLog& log, const std::function<void()>& on_output,
        BuildCancel& cancel)
      : settings_(settings),
        engine_(engine),
        log_(log),
        on_output_(on_output),
        cancel_(cancel),
        deadline_(Clock::now() + settings.limit) {}

  void say(const std::string& line) {
    log_.say(line);
    on_output_();
  }

  Result<Image> fetch(const std::string& from) {
    DRUPE_ASSIGN(ImageStore* const images, engine_.images());
    say("Fetching " + from);
    PullOptions options;
    options.cancel = cancel_.flag();
    std::string last;
    options.on_progress = [&](const Progress& progress) {
      if (progress.what != last) say(progress.what);
      last = progress.what;
    };
    return images->pull(from, options);
  }

  Result<Image> run(const TemplateRow& row, const Image& base, const BuildPlan& plan) {
    SandboxOptions options;
    options.image = "sha256:" + base.id;
    options.name = row.id;
    options.hostname = "build";
    options.idle = true;
    options.cpus = settings_.cpus;
    options.memory_mib = settings_.memory_mib;
    options.disk_bytes = std::max(base.virtual_bytes, kLeastDisk);
    options.network = settings_.network;
    options.host_ca = settings_.host_ca;
    options.pull = PullPolicy::kNever;
    // A USER that the base image does not know must not keep the machine from starting.
    DRUPE_ASSIGN(const SandboxInfo info, engine_.create(options));
    const std::string id = info.record.id;
    auto made = run_in(id, row, plan);
    if (auto removed = engine_.remove(id, true); !removed)
      drupe::log(LogLevel::kError, "A build's sandbox could not be removed: " + removed.error().message);
    return made;
  }

 private:
  static constexpr std::uint64_t kLeastDisk = std::uint64_t{8} << 30;

  Result<Image> run_in(const std::string& id, const TemplateRow& row, const BuildPlan& plan) {
    DRUPE_TRY(engine_.start(id, false, /*owner_bound=*/true));
    {
      DRUPE_ASSIGN(const auto client, engine_.connect(id, false));
      std::size_t number = 0;
      for (const BuildAction& action : plan.actions) {
        ++number;
        if (cancel_.cancelled()) return left();
        if (!action.shown.empty())
          say("Step " + std::to_string(number) + "/" + std::to_string(plan.actions.size()) + " : " +
              action.shown.substr(0, 500));
        if (auto done = act(*client, action); !done) {
          if (cancel_.cancelled()) return left();
          return std::unexpected(std::move(done).error().in("line " + std::to_string(action.line)));
        }
      }
    }
    say("Saving the image");
    DRUPE_TRY(engine_.stop(id, SIGTERM, kStopGrace));
    if (cancel_.cancelled()) return left();
    return commit_sandbox(engine_, id, plan.config, {template_image_name(row.id)});
  }

  Status act(ShimClient& client, const BuildAction& action) {
    FileOptions file;
    file.path = action.path;
    file.parents = true;
    switch (action.kind) {
      case BuildAction::Kind::kMakeDirectory: {
        OpenRequest request;
        request.kind = OpenKind::kMkdir;
        file.mode = 0755;
        request.file = file;
        DRUPE_ASSIGN(const ExitFacts facts,
                     serve_stream(engine_.loop(), client, request, {}, cancel_.client(), {}));
        if (facts.error) return std::unexpected(*facts.error);
        return {};
      }
      case BuildAction::Kind::kWriteFile: {
        file.mode = action.mode;
        set_owner(file, action.owner);
        std::string_view rest = action.content;
        const auto read = [&](std::span<char> into) -> Result<std::size_t> {
          const std::size_t count = rest.copy(into.data(), into.size());
          rest.remove_prefix(count);
          return count;
        };
        DRUPE_TRY(write_guest_file(engine_.loop(), client, file, read));
        return {};
      }
      case BuildAction::Kind::kRun:
        return run_command(client, action);
    }
    return {};
  }

  Status run_command(ShimClient& client, const BuildAction& action) {
    const auto now = Clock::now();
    if (now >= deadline_) return out_of_time();
    OpenRequest request;
    request.exec.exec_id = random_id();
    request.exec.argv = action.argv;
    request.exec.env = action.env;
    request.exec.cwd = action.cwd;
    request.exec.user = action.user;
    request.exec.timeout_ms = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - now).count() + 1);
    StreamSink sink;
    sink.on_data = [&](Channel, std::string_view bytes) -> Status {
      log_.add(bytes);
      on_output_();
      return {};
    };
    DRUPE_ASSIGN(const ExitFacts facts,
                 serve_stream(engine_.loop(), client, request, {}, cancel_.client(), sink));
    if (facts.timed_out) return out_of_time();
    if (facts.oom_killed) return fail(ErrorCode::kGuest, "the command ran out of memory");
    if (facts.error) return std::unexpected(*facts.error);
    if (facts.signal != 0)
      return fail(ErrorCode::kGuest, "the command was ended by signal " + std::to_string(facts.signal));
    if (facts.exit_code != 0)
      return fail(ErrorCode::kGuest, "the command ended with status " + std::to_string(facts.exit_code));
    return {};
  }

  [[nodiscard]] std::unexpected<Error> out_of_time() const {
    return fail(ErrorCode::kTimeout,
                "the build took longer than " + std::to_string(settings_.limit.count()) + " s");
  }

  const BuildSettings& settings_;
  Engine& engine_;
  BuildLog& log_;
  const std::function<void()>& on_output_;
  BuildCancel& cancel_;
  Deadline deadline_;
};

}  // namespace

Result<std::unique_ptr<BuildCancel>> BuildCancel::create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_sys("Making a socket pair failed", errno);
  return std::unique_ptr<BuildCancel>(new BuildCancel(UniqueFd(ends[0]), UniqueFd(ends[1])));
}

void BuildCancel::cancel() {
  flag_ = true;
  ::shutdown(others_.get(), SHUT_RDWR);
}

Result<Image> find_base(RootfsCatalogue& rootfs, const BuildSettings& settings, const std::string& owner,
                        const std::string& from) {
  const std::string name = mapped(settings, from);
  auto image = rootfs.resolve(owner, name, Clock::now());
  if (image || image.error().code != ErrorCode::kInvalidArgument) return image;
  const auto reference = parse_reference(name);
  if (reference && std::ranges::find(settings.registries, reference->host) != settings.registries.end())
    return fail(ErrorCode::kNotFound, "the base image \"" + from + "\" is not here yet");
  return fail(
      ErrorCode::kInvalidArgument,
      "the base image \"" + from + "\" is not here and may not be fetched; GET /v1/rootfs lists what is");
}

Result<Image> build_template(Engines& engines, RootfsCatalogue& rootfs, const BuildSettings& settings,
                             const TemplateRow& row, const Dockerfile& file, BuildLog& log,
                             const std::function<void()>& on_output, BuildCancel& cancel) {
  DRUPE_ASSIGN(const auto engine, engines.lease());
  Build build(settings, *engine, log, on_output, cancel);
  build.say("FROM " + row.base);
  auto base = find_base(rootfs, settings, row.owner, row.base);
  if (!base && base.error().code == ErrorCode::kUnavailable) {
    build.say(base.error().message);
    base = rootfs.resolve(row.owner, mapped(settings, row.base), Clock::now() + kPrepareWait);
  }
  if (!base && base.error().code == ErrorCode::kNotFound) base = build.fetch(mapped(settings, row.base));
  if (!base) return base;
  DRUPE_ASSIGN(const BuildPlan plan, plan_build(file, base->config));
  return build.run(row, *base, plan);
}

}  // namespace drupe::api
