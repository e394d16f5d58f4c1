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
#include "api/program/quotas.h"
#include "api/routes/router.h"
#include "api/service/audit.h"
#include "api/service/egress.h"
#include "api/service/request_log.h"
#include "api/service/retention.h"
#include "api/service/shapes.h"
#include "api/tls/front.h"
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
  std::unique_ptr<TokenStore> tokens;
  std::unique_ptr<QuotaStore> quotas;
};

Result<Opened> open_home(const Config& config) {
  Opened out;
  DRUPE_ASSIGN(const Home home, Home::open(config.home));
  out.home = home.path();
  DRUPE_ASSIGN(out.directory, make_dir_at(home.dir(), "api"));
  const std::string accounts = home.path() + "/api/accounts.db";
  DRUPE_ASSIGN(out.store, open_sqlite_store(accounts));
  DRUPE_ASSIGN(out.templates, TemplateStore::open(accounts));
  DRUPE_ASSIGN(out.tokens, open_sqlite_tokens(accounts));
  DRUPE_ASSIGN(out.quotas, open_sqlite_quotas(accounts));
  return out;
}

Result<std::unique_ptr<Audit>> open_audit(const Config& config, const Opened& opened) {
  DRUPE_ASSIGN(UniqueFd directory, open_at(opened.directory.get(), ".", O_RDONLY | O_DIRECTORY));
  return Audit::open(std::move(directory), static_cast<std::uint64_t>(config.audit_mib) << 20);
}

/// What an operator does by hand.
Status audit_command(const Config& config, const Opened& opened, const std::vector<std::string>& words) {
  if (words.size() < 2 || words[1] == "list" || words[1] == "show") return {};
  DRUPE_ASSIGN(const auto audit, open_audit(config, opened));
  AuditEntry entry;
  entry.by = "operator";
  const std::string action = words[0] + " " + words[1];
  entry.action = action;
  if (words.size() > 2) entry.object = words[2];
  audit->write(entry);
  return {};
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
  settings.paused_ttl = std::chrono::seconds(config.paused_ttl_seconds);
  settings.max_lifetime = std::chrono::seconds(config.max_lifetime_seconds);
  settings.least_auto_pause_s = config.least_auto_pause_seconds;
  settings.quota = {config.quota_sandboxes, config.quota_vcpu, config.quota_mem_mib, config.quota_disk_mib};
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

Result<std::unique_ptr<Pool>> start_pool(const Config& config, const EngineOptions& engine) {
  // check_config() has seen that there is one.
  const Shape shape = *find_shape(config.pool_shape);
  PoolOptions options;
  options.image = config.pool_image;
  options.memory_mib = static_cast<std::uint64_t>(shape.mem_mib);
  options.cpus = cpus_here(shape, std::thread::hardware_concurrency());
  options.disk_bytes = static_cast<std::uint64_t>(kDefaultDiskMib) << 20;
  options.size = static_cast<std::uint32_t>(config.pool_size);
  return Pool::create(engine, options);
}

/// Stops the server at SIGTERM and SIGINT, reads certificates again at SIGHUP. They are blocked in every
/// thread.
class Signals {
 public:
  static Result<std::unique_ptr<Signals>> hold() {
    sigset_t set{};
    ::sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set, number);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC));
    if (!fd.valid()) return fail_sys("Watching for signals failed", errno);
    return std::unique_ptr<Signals>(new Signals(std::move(fd)));
  }
  /// For as long as this process lives, which is no longer than what is heeded for. `tls` may be null.
  void heed(Server& server, TlsFront* tls) {
    std::thread([fd = fd_.get(), &server, tls] {
      signalfd_siginfo info{};
      while (true) {
        if (::read(fd, &info, sizeof info) != sizeof info) continue;
        if (info.ssi_signo != SIGHUP) return server.stop();
        if (tls == nullptr) continue;
        if (auto loaded = tls->reload(); loaded)
          log(LogLevel::kInfo, "The certificate was read again");
        else
          log(LogLevel::kWarning, "The certificate in use stays: " + loaded.error().message);
      }
    }).detach();
  }

 private:
  explicit Signals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

std::string greeting(const Config& config, std::uint16_t port, const std::string& first_key) {
  const std::string url = public_url_of(config, port);
  Config here = config;
  here.public_url.clear();
  std::string text = "druped " DRUPE_VERSION " listens on " + public_url_of(here, port) + "\n";
  if (first_key.empty()) return text;
  return text + "The first API key, which is shown only now:\n  " + first_key +
         "\nClients read it from their environment:\n  export CREATEOS_SANDBOX_BASE_URL=" + url +
         " CREATEOS_SANDBOX_URL=" + url + "\n  export CREATEOS_API_KEY=" + first_key +
         " CREATEOS_SANDBOX_API_KEY=" + first_key + "\n";
}

Result<int> serve(const Config& config) {
  DRUPE_TRY(check_config(config));
  raise_descriptor_limit();
  DRUPE_ASSIGN(auto signals, Signals::hold());
  DRUPE_ASSIGN(Opened opened, open_home(config));
  DRUPE_ASSIGN(const UniqueFd lock, hold_home(opened.directory.get()));
  EngineOptions engine_options;
  engine_options.home = opened.home;
  engine_options.network_ceiling = ceiling_of(config);
  engine_options.on_note = [](std::string_view note) { log(LogLevel::kInfo, note); };
  std::unique_ptr<Pool> pool;
  if (!config.pool_image.empty()) {
    DRUPE_ASSIGN(pool, start_pool(config, engine_options));
  }
  Engines engines(std::move(engine_options));
  RootfsCatalogue rootfs(engines, *opened.templates);
  if (config.log_format == "json") log_as_json();
  DRUPE_ASSIGN(const auto audit, open_audit(config, opened));
  Metrics metrics;
  Sandboxes sandboxes(settings_of(config, opened.home), *opened.store, *opened.quotas, engines, rootfs,
                      metrics);
  if (pool) sandboxes.set_pool(*pool, config.pool_image, config.pool_shape);
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
  Router router({*opened.store,
                 sandboxes,
                 *processes,
                 networks,
                 rootfs,
                 templates,
                 *opened.tokens,
                 metrics,
                 *audit,
                 config.log_requests,
                 {}});
  ServerOptions options;
  options.address = config.address;
  options.port = config.port;
  options.max_workers = static_cast<std::size_t>(config.max_requests);
  std::unique_ptr<TlsFront> tls;
  if (!config.tls_cert.empty()) {
    DRUPE_ASSIGN(tls, TlsFront::start({config.tls_cert, config.tls_key}));
    options.wrap = [&tls](UniqueFd tcp) { return tls->adopt(std::move(tcp)); };
  }
  DRUPE_ASSIGN(auto server,
               Server::listen(options, [&router](Exchange& exchange) { router.handle(exchange); }));
  sandboxes.set_preview_template(preview_template_of(config, server->port()));
  std::string first_key;
  DRUPE_ASSIGN(const auto keys, opened.store->list_keys());
  if (keys.empty()) {
    DRUPE_ASSIGN(first_key, create_key(*opened.store, kFirstUser));
  }
  DRUPE_TRY(print(greeting(config, server->port(), first_key)));
  const Retention retention(sandboxes);
  signals->heed(*server, tls.get());
  DRUPE_TRY(server->run());
  return 0;
}

Result<int> run(const CommandLine& line) {
  if (line.words.empty()) return serve(line.config);
  if (line.words.front() == "key") {
    DRUPE_ASSIGN(const Opened opened, open_home(line.config));
    DRUPE_ASSIGN(const std::string text, run_key_command(*opened.store, line));
    DRUPE_TRY(audit_command(line.config, opened, line.words));
    DRUPE_TRY(print(text));
    return 0;
  }
  if (line.words.front() == "quota") {
    DRUPE_ASSIGN(const Opened opened, open_home(line.config));
    DRUPE_ASSIGN(const std::string text, run_quota_command(*opened.store, *opened.quotas, line.words));
    DRUPE_TRY(audit_command(line.config, opened, line.words));
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
