// The `druped` program.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/http/server.h"
#include "api/program/config.h"
#include "api/program/keys.h"
#include "api/routes/router.h"
#include "api/service/egress.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/home.h"

namespace drupe::api {
namespace {

constexpr int kUsage = 2;

int complain(const Error& error, int status) {
  static_cast<void>(write_all(STDERR_FILENO, "druped: " + to_string(error) + "\n"));
  return status;
}

Status print(const std::string& text) {
  return write_all(STDOUT_FILENO, text);
}

/// Every connection and every sandbox in use takes descriptors.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// One server works on a home; commands about keys do not count.
Result<UniqueFd> hold_home(DirFd directory) {
  DRUPE_ASSIGN(UniqueFd lock, open_at(directory, "lock", O_RDWR | O_CREAT));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorCode::kBusy, "Another druped serves this home already",
                "Stop it, or give this one another --home.");
  return lock;
}

struct Opened {
  std::string home;
  UniqueFd directory;
  std::unique_ptr<Store> store;
  std::unique_ptr<TemplateStore> templates;
};

Result<Opened> open_home(const Config& config) {
  Opened out;
  DRUPE_ASSIGN(const Home home, Home::open(config.home));
  out.home = home.path();
  DRUPE_ASSIGN(out.directory, make_dir_at(home.dir(), "api"));
  const std::string accounts = home.path() + "/api/accounts.db";
  DRUPE_ASSIGN(out.store, open_sqlite_store(accounts));
  DRUPE_ASSIGN(out.templates, TemplateStore::open(accounts));
  return out;
}

SandboxSettings settings_of(const Config& config, const std::string& home) {
  SandboxSettings settings;
  settings.home = home;
  settings.region = config.region;
  settings.default_rootfs = config.default_rootfs;
  settings.preview_domain = config.preview_domain;
  settings.accept_emulation = config.accept_emulation;
  settings.open_ranges = config.open_ranges;
  settings.most_disk_mib = config.most_disk_mib;
  settings.retention = std::chrono::seconds(config.retention_seconds);
  return settings;
}

Result<TemplateSettings> template_settings_of(const Config& config, const std::string& home) {
  TemplateSettings settings;
  settings.log_folder = home + "/api/builds";
  settings.most_of_user = static_cast<std::size_t>(config.most_templates);
  settings.builds = static_cast<std::size_t>(config.builds);
  DRUPE_ASSIGN(settings.build.network, network_for(config.build_egress, config.open_ranges));
  settings.build.host_ca = config.build_host_ca;
  settings.build.memory_mib = static_cast<std::uint64_t>(config.build_memory_mib);
  settings.build.cpus =
      std::clamp(std::thread::hardware_concurrency(), 1U, static_cast<unsigned>(config.build_vcpu));
  settings.build.limit = std::chrono::seconds(config.build_seconds);
  settings.build.registries = config.build_registries;
  settings.build.base_images = config.base_images;
  return settings;
}

/// Stops the server at SIGTERM and SIGINT, which are blocked in every thread.
class StopSignals {
 public:
  static Result<std::unique_ptr<StopSignals>> hold() {
    sigset_t set{};
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC));
    if (!fd.valid()) return fail_sys("Watching for signals failed", errno);
    return std::unique_ptr<StopSignals>(new StopSignals(std::move(fd)));
  }
  /// For as long as this process lives.
  void stop_at_signal(Server& server) {
    std::thread([fd = fd_.get(), &server] {
      signalfd_siginfo info{};
      while (::read(fd, &info, sizeof info) != sizeof info) {
      }
      server.stop();
    }).detach();
  }

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

std::string greeting(const Config& config, std::uint16_t port, const std::string& first_key) {
  const bool v6 = config.address.find(':') != std::string::npos;
  const std::string url =
      "http://" + (v6 ? "[" + config.address + "]" : config.address) + ":" + std::to_string(port);
  std::string text = "druped " DRUPE_VERSION " listens on " + url + "\n";
  if (first_key.empty()) return text;
  return text + "The first API key, which is shown only now:\n  " + first_key +
         "\nClients read it from their environment:\n  export CREATEOS_SANDBOX_BASE_URL=" + url +
         " CREATEOS_SANDBOX_URL=" + url + "\n  export CREATEOS_API_KEY=" + first_key +
         " CREATEOS_SANDBOX_API_KEY=" + first_key + "\n";
}

Result<int> serve(const Config& config) {
  DRUPE_TRY(check_config(config));
  raise_descriptor_limit();
  DRUPE_ASSIGN(auto signals, StopSignals::hold());
  DRUPE_ASSIGN(Opened opened, open_home(config));
  DRUPE_ASSIGN(const UniqueFd lock, hold_home(opened.directory.get()));
  EngineOptions engine_options;
  engine_options.home = opened.home;
  engine_options.network_ceiling = ceiling_of(config);
  engine_options.on_note = [](std::string_view note) { log(LogLevel::kInfo, note); };
  Engines engines(std::move(engine_options));
  RootfsCatalogue rootfs(engines, *opened.templates);
  Sandboxes sandboxes(settings_of(config, opened.home), *opened.store, engines, rootfs);
  DRUPE_ASSIGN(const auto processes, Processes::start(*opened.store));
  sandboxes.on_gone([&processes](const std::string& id) { processes->forget(id); });
  if (auto reconciled = sandboxes.reconcile(); !reconciled)
    log(LogLevel::kError, "Some sandboxes could not be looked at: " + reconciled.error().message);
  Networks networks(*opened.store, engines, sandboxes);
  DRUPE_ASSIGN(TemplateSettings template_settings, template_settings_of(config, opened.home));
  Templates templates(std::move(template_settings), *opened.templates, engines, rootfs, sandboxes);
  if (auto reconciled = templates.reconcile(); !reconciled)
    log(LogLevel::kError, "Some templates could not be looked at: " + reconciled.error().message);
  rootfs.prepare(config.prepared_images);
  templates.start();
  Router router({*opened.store, sandboxes, *processes, networks, rootfs, templates});
  ServerOptions options;
  options.address = config.address;
  options.port = config.port;
  options.max_workers = static_cast<std::size_t>(config.max_requests);
  DRUPE_ASSIGN(auto server,
               Server::listen(options, [&router](Exchange& exchange) { router.handle(exchange); }));
  sandboxes.set_preview_template("http://<id>-<port>." + config.preview_domain + ":" +
                                 std::to_string(server->port()));
  std::string first_key;
  DRUPE_ASSIGN(const auto keys, opened.store->list_keys());
  if (keys.empty()) {
    DRUPE_ASSIGN(first_key, create_key(*opened.store, kFirstUser));
  }
  DRUPE_TRY(print(greeting(config, server->port(), first_key)));
  signals->stop_at_signal(*server);
  DRUPE_TRY(server->run());
  return 0;
}

Result<int> run(const CommandLine& line) {
  if (line.words.empty()) return serve(line.config);
  if (line.words.front() == "key") {
    DRUPE_ASSIGN(const Opened opened, open_home(line.config));
    DRUPE_ASSIGN(const std::string text, run_key_command(*opened.store, line));
    DRUPE_TRY(print(text));
    return 0;
  }
  if (line.words.size() == 2 && line.words.front() == "config" && line.words.back() == "check") {
    DRUPE_TRY(check_config(line.config));
    DRUPE_TRY(print("The configuration is good.\n"));
    return 0;
  }
  return fail(ErrorCode::kInvalidArgument, "There is no command " + line.words.front().substr(0, 80),
              "'druped --help' tells what there is.");
}

int start(const std::vector<std::string>& arguments) {
  set_log_name("druped");
  const auto line = read_command_line(arguments);
  if (!line) return complain(line.error(), kUsage);
  if (line->help) return print(help_text()) ? 0 : 1;
  if (line->version) return print("druped " DRUPE_VERSION "\n") ? 0 : 1;
  const auto status = run(*line);
  if (!status)
    return complain(status.error(), status.error().code == ErrorCode::kInvalidArgument ? kUsage : 1);
  return *status;
}

}  // namespace
}  // namespace drupe::api

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return drupe::api::start({argv + (argc > 0 ? 1 : 0), argv + argc});
}
