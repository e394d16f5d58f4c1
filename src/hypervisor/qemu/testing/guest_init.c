// PID 1 of the driver's own tests: loads the modules, mounts the disk and obeys lines on the control port.
// Each line is answered with one line.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void load_modules(void) {
  FILE* order = fopen("/mods/order", "re");
  char name[64];
  while (order && fscanf(order, "%63s", name) == 1) {
    char path[96];
    snprintf(path, sizeof path, "/mods/%s.ko", name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && syscall(SYS_finit_module, fd, "", 0) != 0)
      printf("module %s: %s\n", name, strerror(errno));
    close(fd);
  }
}

static int open_port(const char* wanted) {
  for (int tries = 0; tries < 2000; ++tries) {
    DIR* ports = opendir("/sys/class/virtio-ports");
    struct dirent* entry;
    while (ports && (entry = readdir(ports))) {
      char path[320];
      char name[64] = "";
      snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
      FILE* file = fopen(path, "re");
      if (!file) continue;
      const int got = fscanf(file, "%63s", name);
      fclose(file);
      if (got != 1 || strcmp(name, wanted) != 0) continue;
      snprintf(path, sizeof path, "/dev/%s", entry->d_name);
      closedir(ports);
      return open(path, O_RDWR | O_CLOEXEC);
    }
    if (ports) closedir(ports);
    usleep(1000);
  }
  return -1;
}

static unsigned char* memory;
static size_t memory_size;

// Every page gets other content, so that a page in the wrong place is seen.
static void fill(size_t mib, uint64_t seed) {
  memory_size = mib << 20;
  if (!memory)
    memory = mmap(0, 1UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t at = 0; at < memory_size; at += 8)
    *(uint64_t*)(memory + at) = (at ^ seed) * 0x9e3779b97f4a7c15ULL;
}

static int verify(uint64_t seed) {
  for (size_t at = 0; at < memory_size; at += 8)
    if (*(uint64_t*)(memory + at) != (at ^ seed) * 0x9e3779b97f4a7c15ULL) return 0;
  return 1;
}

static int write_file(const char* path, size_t mib, uint64_t seed) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  static uint64_t block[8192];
  for (size_t i = 0; i < mib * 16; ++i) {
    for (size_t k = 0; k < 8192; ++k) block[k] = (i * 8192 + k) ^ seed;
    if (write(fd, block, sizeof block) != sizeof block) return -errno;
  }
  const int rc = fsync(fd) ? -errno : 0;
  close(fd);
  return rc;
}

static int check_file(const char* path, size_t mib, uint64_t seed) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  static uint64_t block[8192];
  int rc = 0;
  for (size_t i = 0; i < mib * 16 && !rc; ++i) {
    if (read(fd, block, sizeof block) != sizeof block) rc = -EIO;
    for (size_t k = 0; k < 8192 && !rc; ++k)
      if (block[k] != ((i * 8192 + k) ^ seed)) rc = -EILSEQ;
  }
  close(fd);
  return rc;
}

static pid_t writer;

// Writes, syncs and removes files for ever.
static void start_writer(void) {
  writer = fork();
  if (writer) return;
  for (uint64_t i = 0;; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/root/load/%u", (unsigned)(i % 17));
    write_file(path, 1 + i % 2, i);
    snprintf(path, sizeof path, "/root/load/%u", (unsigned)((i + 9) % 17));
    if (i % 3 == 0) unlink(path);
  }
}

static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void freeze(int on) {
  const int fd = open("/root", O_RDONLY | O_CLOEXEC);
  if (ioctl(fd, on ? FIFREEZE : FITHAW, 0)) printf("freeze: %s\n", strerror(errno));
  close(fd);
}

static uint64_t disk_bytes(void) {
  uint64_t size = 0;
  const int fd = open("/dev/vda", O_RDONLY | O_CLOEXEC);
  ioctl(fd, BLKGETSIZE64, &size);
  close(fd);
  return size;
}

static void obey(const char* line, char* answer, size_t room) {
  char path[64] = "";
  unsigned long a = 0, b = 0;
  if (sscanf(line, "ping %lu", &a) == 1)
    snprintf(answer, room, "pong %lu\n", a);
  else if (sscanf(line, "fill %lu %lu", &a, &b) == 2)
    fill(a, b), snprintf(answer, room, "ok\n");
  else if (sscanf(line, "verify %lu", &b) == 1)
    snprintf(answer, room, verify(b) ? "ok\n" : "bad\n");
  else if (sscanf(line, "write %63s %lu %lu", path, &a, &b) == 3)
    snprintf(answer, room, "%d\n", write_file(path, a, b));
  else if (sscanf(line, "check %63s %lu %lu", path, &a, &b) == 3)
    snprintf(answer, room, "%d\n", check_file(path, a, b));
  else if (!strcmp(line, "load on"))
    start_writer(), snprintf(answer, room, "ok\n");
  else if (!strcmp(line, "load off"))
    kill(writer, SIGKILL), waitpid(writer, 0, 0), snprintf(answer, room, "ok\n");
  else if (!strcmp(line, "freeze"))
    freeze(1), snprintf(answer, room, "ok\n");
  else if (!strcmp(line, "thaw"))
    freeze(0), snprintf(answer, room, "ok\n");
  else if (!strcmp(line, "sync"))
    sync(), snprintf(answer, room, "ok\n");
  else if (!strcmp(line, "clock"))
    snprintf(answer, room, "%llu\n", (unsigned long long)now(CLOCK_MONOTONIC));
  else if (!strcmp(line, "disk"))
    snprintf(answer, room, "%llu\n", (unsigned long long)disk_bytes());
  else if (!strcmp(line, "exec")) {
    const pid_t child = fork();
    if (!child) _exit(execl("/init", "init", "true", (char*)0));
    int status = -1;
    waitpid(child, &status, 0);
    snprintf(answer, room, "%d\n", status);
  } else if (!strcmp(line, "sleep")) {
    const uint64_t start = now(CLOCK_MONOTONIC);
    usleep(100000);
    snprintf(answer, room, "%llu\n", (unsigned long long)(now(CLOCK_MONOTONIC) - start));
  } else if (!strcmp(line, "reboot"))
    reboot(RB_AUTOBOOT);
  else if (!strcmp(line, "panic")) {
    const int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
    if (write(fd, "c", 1) != 1) reboot(RB_AUTOBOOT);
  } else
    snprintf(answer, room, "unknown: %s\n", line);
}

int main(int argc, char** argv) {
  if (argc > 1 && !strcmp(argv[1], "true")) return 0;
  mount("proc", "/proc", "proc", 0, "");
  mount("sys", "/sys", "sysfs", 0, "");
  mount("dev", "/dev", "devtmpfs", 0, "");
  load_modules();
  mkdir("/root", 0700);
  if (mount("/dev/vda", "/root", "ext4", 0, "")) printf("mount: %s\n", strerror(errno));
  mkdir("/root/load", 0700);
  const int port = open_port("drupe.control");
  printf("test guest ready, port %d\n", port);
  if (port < 0 || write(port, "ready\n", 6) != 6) return 1;
  char line[256];
  size_t used = 0;
  while (1) {
    char c;
    if (read(port, &c, 1) != 1) {  // the host's end is closed
      usleep(1000);
      continue;
    }
    if (c != '\n') {
      if (used < sizeof line - 1) line[used++] = c;
      continue;
    }
    line[used] = 0;
    used = 0;
    char answer[300] = "?\n";
    obey(line, answer, sizeof answer);
    if (write(port, answer, strlen(answer)) < 0) printf("answer: %s\n", strerror(errno));
  }
}
