// Takes qemu's place, as a hypervisor that its guest has taken over (or that is broken). What it does depends
// on the name it was started under: fake-qemu-MODE. It has the descriptors and the confinement of the real
// one.
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hypervisor/qemu/command.h"

namespace {

using namespace drupe::qemu_fd;

void say(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) ::_exit(3);
}

void report_ram(std::uint64_t address) {
  char go = 0;
  if (::read(kReport, &go, 1) != 1) ::_exit(4);
  const std::array<std::uint64_t, 2> report{address, 256U << 20};
  if (::write(kReport, report.data(), sizeof report) != sizeof report) ::_exit(5);
  ::close(kReport);
}

void greet() {
  say(kQmp, "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n");
}

void say_joined() {
  say(kQmp, R"({"event": "BLOCK_JOB_COMPLETED", "data": {"device": "flatten"}})"
            "\n");
}

// Answers every command as qemu would on success. An impatient one says that the disk's layers are joined
// before it was asked to, and more often than once.
void obey_for_ever(bool impatient) {
  std::string buffer;
  std::array<char, 4096> chunk{};
  while (true) {
    const ssize_t got = ::read(kQmp, chunk.data(), chunk.size());
    if (got <= 0) ::_exit(0);
    buffer.append(chunk.data(), static_cast<std::size_t>(got));
    for (auto end = buffer.find('\n'); end != std::string::npos; end = buffer.find('\n')) {
      const std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      const bool joins = line.find("block-stream") != std::string::npos;
      const bool drops = line.find("blockdev-del") != std::string::npos;
      if (impatient && (joins || drops)) say_joined();
      const auto id = line.rfind("\"id\":\"");
      say(kQmp,
          "{\"return\": {}, \"id\": \"" + line.substr(id + 6, line.find('"', id + 6) - id - 6) + "\"}\n");
      if (joins || (impatient && drops)) say_joined();
      if (line.find("migrate-incoming") != std::string::npos)
        say(kQmp, R"({"event": "MIGRATION", "data": {"status": "completed"}})"
                  "\n");
    }
  }
}

std::string attempt(const char* what, bool worked) {
  return std::string(what) + (worked ? "=yes(" : "=no(") + std::strerror(errno) + ") ";
}

// What a taken-over hypervisor would try first; each line of the answer must say no.
std::string attack() {
  std::string out;
  out += attempt("write-base", ::pwrite(kRam, "x", 1, 0) == 1);
  out +=
      attempt("map-base", ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, kRam, 0) != MAP_FAILED);
  out += attempt("truncate-base", ::ftruncate(kRam, 0) == 0);
  out += attempt("write-image", ::pwrite(kFirstDisk, "x", 1, 0) == 1);
  for (const int fd : {kRam, kFirstDisk}) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    out += attempt("reopen", ::open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0);
  }
  out += attempt("etc", ::open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0);
  out += attempt("tmp", ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0);
  out += attempt("proc", ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0);
  out += attempt("up", ::open("/usr/../../../../tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0);
  out += attempt("socket", ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0);
  out += attempt("shell", ::execl("/bin/sh", "sh", "-c", "exit 0", nullptr) == 0);
  return out;
}

}  // namespace

int main(int, char** argv) {
  const std::string name = argv[0];
  const std::string mode = name.substr(name.rfind('-') + 1);
  if (mode == "exit") {
    std::fprintf(stderr, "fake-qemu: cannot do anything today\n");
    return 3;
  }
  if (mode == "silent") ::pause();
  if (mode == "liar") report_ram(0xffff'8000'0000'0000ULL);
  if (mode == "shortreport") say(kReport, "xx");
  report_ram(0x7f00'0000'0000ULL);
  if (mode == "garbage") say(kQmp, "\x01\x02{[[[[\n");
  if (mode == "endless")
    while (true) say(kQmp, std::string(4096, '['));
  if (mode == "deaf") {
    greet();
    ::pause();
  }
  if (mode == "flood") {
    greet();
    while (true)
      say(kQmp, R"({"event": "RTC_CHANGE", "data": {}})"
                "\n");
  }
  if (mode == "attack") say(kConsole, attack() + "\nend\n");
  greet();
  obey_for_ever(mode == "impatient");
  return 0;
}
