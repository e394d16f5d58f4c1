#include "engine/guest_assets.h"

#include <cerrno>
#include <climits>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "engine/sparse_copy.h"
#include "image/digest.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe {
namespace {

constexpr const char* kDigestCache = "cache/guest";

Result<std::string> own_directory() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return fail_sys("Finding the running program failed", errno);
  const std::string text(path, static_cast<std::size_t>(size));
  return text.substr(0, text.rfind('/'));
}

/// What tells one state of a file from another without reading it.
Result<std::string> fingerprint(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) {
    auto error = fail_sys("The guest file " + path + " cannot be used", errno).error();
    return std::unexpected(std::move(error).with_next_step(
        "Run scripts/guest.sh, or set DRUPE_GUEST_DIR to the directory that has it."));
  }
  ByteWriter writer;
  writer.text(path).number(found.st_dev).number(found.st_ino).number(found.st_size);
  writer.number(found.st_mtim.tv_sec)
      .number(found.st_mtim.tv_nsec)
      .number(found.st_ctim.tv_sec)
      .number(found.st_ctim.tv_nsec);
  return writer.take();
}

Result<std::string> hash_of(const std::string& path) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(AT_FDCWD, path, O_RDONLY));
  FdSource file(fd.get());
  HashingSource hashing(file, std::uint64_t{1} << 30);
  DRUPE_TRY(drain(hashing));
  return hashing.hex();
}

std::string remembered_digest(const Home& home, const std::string& print) {
  const auto text = read_file(home.dir(), kDigestCache, 65536);
  if (!text) return {};
  ByteReader reader(*text);
  const std::string have = reader.text();
  const std::string digest = reader.text();
  return reader.done() && have == print && is_sha256_hex(digest) ? digest : std::string();
}

bool has_assets(const Home& home, const std::string& directory) {
  return ::faccessat(home.dir(), (directory + "/" + kKernelFile).c_str(), R_OK, 0) == 0 &&
         ::faccessat(home.dir(), (directory + "/" + kInitramfsFile).c_str(), R_OK, 0) == 0;
}

Status take_over(const Home& home, const std::string& guest_dir, const std::string& directory) {
  DRUPE_ASSIGN(Home::Scratch scratch, home.make_scratch("kernel"));
  for (const char* name : {kKernelFile, kInitramfsFile})
    DRUPE_TRY(copy_file(AT_FDCWD, guest_dir + "/" + name, scratch.dir.get(), name, 0400));
  ::unlinkat(scratch.dir.get(), "lock", 0);
  if (::renameat(home.dir(), scratch.path.c_str(), home.dir(), directory.c_str()) == 0) return {};
  const int err = errno;
  DRUPE_TRY(remove_tree(home.dir(), scratch.path));
  if (err == EEXIST || err == ENOTEMPTY) return {};  // another process was faster
  return fail_sys("Keeping the guest's kernel failed", err);
}

}  // namespace

Result<Installation> find_installation(const EngineOptions& options) {
  std::string binaries = options.binary_dir;
  if (binaries.empty()) {
    DRUPE_ASSIGN(binaries, own_directory());
  }
  std::string guest = options.guest_dir;
  if (guest.empty()) {
    const char* from_environment = std::getenv("DRUPE_GUEST_DIR");
    guest =
        from_environment != nullptr && *from_environment != '\0' ? from_environment : binaries + "/../guest";
  }
  return Installation{binaries + "/drupe-shim", binaries + "/libdrupe-ram.so", binaries + "/drupe-net",
                      guest};
}

Result<GuestAssets> provide_guest_assets(const Home& home, const std::string& guest_dir) {
  const std::string kernel = guest_dir + "/" + kKernelFile;
  const std::string initramfs = guest_dir + "/" + kInitramfsFile;
  DRUPE_ASSIGN(std::string print, fingerprint(kernel));
  DRUPE_ASSIGN(const std::string second, fingerprint(initramfs));
  print += second;
  GuestAssets assets;
  assets.digest = remembered_digest(home, print);
  const bool remembered = !assets.digest.empty();
  if (!remembered) {
    DRUPE_ASSIGN(const std::string kernel_digest, hash_of(kernel));
    DRUPE_ASSIGN(const std::string initramfs_digest, hash_of(initramfs));
    assets.digest = sha256_hex(kernel_digest + initramfs_digest);
  }
  assets.directory = "kernels/" + assets.digest;
  if (!has_assets(home, assets.directory)) DRUPE_TRY(take_over(home, guest_dir, assets.directory));
  if (!remembered) {
    ByteWriter writer;
    writer.text(print).text(assets.digest);
    DRUPE_TRY(replace_file(home.dir(), kDigestCache, writer.bytes(), Sync::kNo));
  }
  return assets;
}

Status copy_file(DirFd from_dir, const std::string& from, DirFd to_dir, const std::string& to, mode_t mode) {
  DRUPE_ASSIGN(const UniqueFd in, open_at(from_dir, from, O_RDONLY));
  DRUPE_ASSIGN(const UniqueFd out, open_at(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  struct stat found{};
  if (::fstat(in.get(), &found) != 0) return fail_sys("Looking at " + from + " failed", errno);
  auto copied = copy_data(in.get(), out.get(), found.st_size);
  if (!copied) {
    ::unlinkat(to_dir, to.c_str(), 0);
    return std::unexpected(std::move(copied).error().in("Copying " + from + " failed"));
  }
  return {};
}

Status link_file(DirFd from_dir, const std::string& from, DirFd to_dir, const std::string& to) {
  if (::linkat(from_dir, from.c_str(), to_dir, to.c_str(), 0) == 0) return {};
  if (errno == EMLINK) return copy_file(from_dir, from, to_dir, to, 0400);
  return fail_sys("Linking " + from + " as " + to + " failed", errno);
}

}  // namespace drupe
