// Adding the host's certificate authorities to the stores that the image's clients read.
//
// A directory on the way may be a link, as distributions have them, and leads somewhere in the guest's own
// root. What is written is always a regular file or a link with a name of its own: nothing is opened for
// writing that is there already.
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/sys.h"
#include "agent/tasks.h"
#include "agent/trust_store.h"
#include "base/files.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxStore = std::size_t{16} << 20;
constexpr int kMaxSameHash = 64;
/// Read by curl, git, wget, apt, Go, Python's ssl and OpenSSL of Debian, Alpine and Arch; made where it is
/// missing, because the variables that sandboxes get name it.
constexpr const char* kMainStore = "/etc/ssl/certs/ca-certificates.crt";
/// The same of Fedora and its kin, openSUSE, Alpine, and of OpenSSL as its authors build it.
constexpr const char* kOtherStores[] = {"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/var/lib/ca-certificates/ca-bundle.pem",
                                        "/etc/ssl/ca-bundle.pem",
                                        "/etc/ssl/cert.pem",
                                        "/usr/lib/ssl/cert.pem"};
/// Where links by hash are, and, of update-ca-certificates(8) and update-ca-trust(8), the administrator's own
/// authorities.
constexpr const char* kHashedDir = "/etc/ssl/certs";
constexpr const char* kLocalDir = "/usr/local/share/ca-certificates";
constexpr const char* kAnchorsDir = "/etc/pki/ca-trust/source/anchors";
constexpr const char* kPrefix = "drupe-host-";

/// The file behind `path` and its links, when it is a regular one in a place where distributions keep stores;
/// else `path` itself, so that a link is replaced and what it names is left alone.
std::string place_of(const std::string& path) {
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
  if (!real) return path;
  std::string target = real.get();
  for (const char* tree : {"/etc/", "/usr/", "/var/lib/"})
    if (target.starts_with(tree)) return target;
  return path;
}

struct Store {
  std::string place;
  std::string text;
  bool there = false;
};

Result<Store> read_store(const char* path) {
  Store store{place_of(path), {}, false};
  struct stat info{};
  if (::stat(path, &info) != 0) {
    if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR) return store;
    return file_error("Looking at", path, errno);
  }
  const auto unusable = [path] {
    return fail(ErrorCode::kGuest,
                std::string("The image has something else than a file of certificates as ") + path,
                "Leave --host-ca away.");
  };
  // Not even opened: for some devices that has an effect.
  if (!S_ISREG(info.st_mode)) return unusable();
  const UniqueFd file(::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) return file_error("Opening", path, errno);
  auto text = read_all(file.get(), kMaxStore);
  if (!text) return unusable();
  store.text = *std::move(text);
  store.there = true;
  return store;
}

Status write_store(const Store& store, const std::string& text) {
  if (store.there && store.text == text) return {};
  auto written = replace_file(AT_FDCWD, store.place, text, Sync::kNo, 0644);
  if (!written) return file_error("Writing", store.place, written.error().sys_errno);
  return {};
}

Result<UniqueFd> make_dir(const char* path) {
  DRUPE_TRY(make_parents(std::string(path) + "/"));
  return open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
}

std::vector<std::string> names_in(int dir) {
  std::vector<std::string> names;
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : ::fdopendir(copy);
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing)) names.emplace_back(entry->d_name);
  ::closedir(listing);
  return names;
}

std::string file_name(const TrustedAuthority& one, const char* suffix) {
  return kPrefix + one.id + suffix;
}

/// Files of an earlier start whose authorities the host trusts no more, and the links to them.
void remove_others(int local, int hashed, const std::vector<TrustedAuthority>& authorities) {
  std::set<std::string> kept;
  for (const auto& one : authorities) kept.insert(file_name(one, ".crt"));
  std::set<std::string> gone;
  for (const std::string& name : names_in(local)) {
    if (!name.starts_with(kPrefix) || !name.ends_with(".crt") || kept.contains(name)) continue;
    ::unlinkat(local, name.c_str(), 0);
    gone.insert(name.substr(0, name.size() - 4) + ".pem");
  }
  if (gone.empty()) return;
  for (const std::string& name : names_in(hashed))
    if (gone.contains(name) || gone.contains(read_link(hashed, name))) ::unlinkat(hashed, name.c_str(), 0);
}

Status link_to(int dir, const std::string& name, const std::string& target) {
  if (read_link(dir, name) == target) return {};
  ::unlinkat(dir, name.c_str(), 0);
  if (::symlinkat(target.c_str(), dir, name.c_str()) != 0)
    return file_error("Creating the link", name, errno);
  return {};
}

/// HASH.0, HASH.1 and so on, the first that is free; none when one of them leads to `target` already.
Status link_by_hash(int dir, const std::string& hash, const std::string& target) {
  for (int i = 0; i < kMaxSameHash; ++i) {
    const std::string name = hash + "." + std::to_string(i);
    if (read_link(dir, name) == target || ::symlinkat(target.c_str(), dir, name.c_str()) == 0) return {};
    if (errno != EEXIST) return file_error("Creating the link", name, errno);
  }
  return fail(ErrorCode::kGuest, "The image has too many certificates with the same hash");
}

/// A boot mostly finds everything in its place: nothing is written then, so that a full disk does not matter.
Status write_changed(int dir, const std::string& name, const std::string& text) {
  const UniqueFd old(::openat(dir, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (old.valid() && ::fstat(old.get(), &info) == 0 && S_ISREG(info.st_mode)) {
    const auto content = read_all(old.get(), kMaxStore);
    if (content && *content == text) return {};
  }
  if (auto written = replace_file(dir, name, text, Sync::kNo, 0644); !written)
    return file_error("Writing", name, written.error().sys_errno);
  return {};
}

/// As update-ca-certificates(8) would do it, so that a later run of it changes nothing.
Status install_files(const std::vector<TrustedAuthority>& added,
                     const std::vector<TrustedAuthority>& authorities) {
  DRUPE_ASSIGN(const UniqueFd local, make_dir(kLocalDir));
  DRUPE_ASSIGN(const UniqueFd hashed, make_dir(kHashedDir));
  remove_others(local.get(), hashed.get(), authorities);
  for (const auto& one : added) {
    const std::string file = file_name(one, ".crt");
    const std::string link = file_name(one, ".pem");
    DRUPE_TRY(write_changed(local.get(), file, one.pem));
    DRUPE_TRY(link_to(hashed.get(), link, std::string(kLocalDir) + "/" + file));
    DRUPE_TRY(link_by_hash(hashed.get(), one.subject_hash, link));
  }
  return {};
}

Status install_anchors(const std::vector<TrustedAuthority>& added) {
  const auto dir = open_at(AT_FDCWD, kAnchorsDir, O_RDONLY | O_DIRECTORY);
  if (!dir) return {};
  std::string text;
  for (const auto& one : added) text += one.pem;
  return write_changed(dir->get(), std::string(kPrefix) + "authorities.pem", text);
}

}  // namespace

Result<std::string> trust_task() {
  DRUPE_ASSIGN(const std::string bytes, read_all(STDIN_FILENO, kMaxTrustBundle));
  DRUPE_ASSIGN(const TrustBundle bundle, TrustBundle::decode(as_bytes(bytes)));
  DRUPE_TRY(make_dir(kHashedDir));
  DRUPE_ASSIGN(Store main, read_store(kMainStore));
  std::vector<Store> others;
  for (const char* path : kOtherStores) {
    auto store = read_store(path);
    if (store && store->there && store->place != main.place) others.push_back(*std::move(store));
  }
  // Where the image's own store is another one, this one begins as its copy.
  const bool has_own = main.there || others.empty();
  const MergedStore merged = merge_store(has_own ? main.text : others.front().text, bundle.authorities);
  DRUPE_TRY(write_store(main, merged.text));
  for (const Store& store : others)
    DRUPE_TRY(write_store(store, merge_store(store.text, bundle.authorities).text));
  DRUPE_TRY(install_files(merged.added, bundle.authorities));
  DRUPE_TRY(install_anchors(merged.added));
  return std::string();
}

}  // namespace drupe::agent
