// Loaded into qemu with LD_PRELOAD: gives qemu descriptors where it insists on paths, and lays saved memory
// over its RAM.
//
// * qemu 7.2 opens a RAM file read-write even for a private mapping. Here it gets a read-only descriptor
// instead, so
//   that no process that runs a guest can change what other guests map.
// * Right after qemu has mapped its RAM, each extent of a delta file is mapped over it, private as well:
// nothing is copied.
// * For a machine that is started before its memory has been saved, a thread waits for the delta and maps it
//   then.
// * The kernel, the initramfs and /dev/kvm come as descriptors, too: qemu's root directory has none of them.
// * The address of the RAM goes to the shim, which then reads own pages from outside; afterwards the process
// is no
//   longer dumpable, so no neighbour with the same uid can open its memory.
//
// Runs inside the confinement of qemu and is trusted no more than qemu. Configured by DRUPE_PRELOAD:
// "name=number" separated by spaces (see QemuCommand).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

// One extent as the shim writes it into the extents descriptor (MemoryExtent).
struct extent {
  uint64_t ram_offset;
  uint64_t file_offset;
  uint64_t length;
};

struct report {
  uint64_t address;
  uint64_t length;
};

// One magic path and the descriptor that stands for it; -1: none.
struct magic {
  const char* name;
  const char* path;
  int fd;
};

static struct magic paths[] = {
    {"kernel", "/drupe/kernel", -1},
    {"initramfs", "/drupe/initramfs", -1},
    {"kvm", "/dev/kvm", -1},
    {"ram", "/drupe/ram", -1},
};
static uint64_t ram_bytes;
static int delta_fd = -1;
static int extents_fd = -1;
static int report_fd = -1;
static int late;           // the delta comes over the report socket when the process runs
static int anonymous;      // the base has no data: plain memory is cheaper than pages of holes
static int ram_file = -1;  // what qemu got for /drupe/ram
static int ram_mapped;

static void die(const char* what) {
  dprintf(2, "libdrupe-ram: %s: %s\n", what, strerror(errno));
  _exit(70);
}

__attribute__((constructor)) static void configure(void) {
  // qemu asks for huge pages for its translated code. Each is cleared whole at its first byte, which a
  // restore waits for, and stays whole in a sandbox that uses a little of it.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  const char* text = getenv("DRUPE_PRELOAD");
  while (text && *text) {
    char name[16];
    unsigned long long value;
    int used = 0;
    if (sscanf(text, "%15[a-z]=%llu%n", name, &value, &used) != 2) die("DRUPE_PRELOAD is malformed");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; ++i)
      if (!strcmp(name, paths[i].name)) paths[i].fd = (int)value;
    if (!strcmp(name, "size")) ram_bytes = value;
    if (!strcmp(name, "delta")) delta_fd = (int)value;
    if (!strcmp(name, "extents")) extents_fd = (int)value;
    if (!strcmp(name, "report")) report_fd = (int)value;
    if (!strcmp(name, "late")) late = (int)value;
    if (!strcmp(name, "anonymous")) anonymous = (int)value;
    text += used;
    text += strspn(text, " ");
  }
  unsetenv("LD_PRELOAD");
  unsetenv("DRUPE_PRELOAD");
}

// A descriptor for a magic path; -1 with errno 0: not a magic path.
static int open_magic(const char* path) {
  errno = 0;
  if (!path) return -1;
  for (size_t i = 0; i < sizeof paths / sizeof *paths; ++i) {
    if (paths[i].fd < 0 || strcmp(path, paths[i].path) != 0) continue;
    const int fd = fcntl(paths[i].fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) die(path);
    lseek(fd, 0, SEEK_SET);
    if (!strcmp(paths[i].name, "ram")) ram_file = fd;
    return fd;
  }
  return -1;
}

#define NEXT(type, name)                              \
  static type next;                                   \
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, name); \
  if (!next) die("dlsym " name)

#define MODE_ARGUMENT(flags)                              \
  mode_t mode = 0;                                        \
  if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
    va_list list;                                         \
    va_start(list, flags);                                \
    mode = va_arg(list, mode_t);                          \
    va_end(list);                                         \
  }

typedef int (*open_fn)(const char*, int, ...);
typedef int (*open_2_fn)(const char*, int);
typedef FILE* (*fopen_fn)(const char*, const char*);
typedef void* (*mmap_fn)(void*, size_t, int, int, int, off_t);

#define DEFINE_OPEN(name)                             \
  PUBLIC int name(const char* path, int flags, ...) { \
    const int fd = open_magic(path);                  \
    if (fd >= 0) return fd;                           \
    MODE_ARGUMENT(flags)                              \
    NEXT(open_fn, #name);                             \
    return next(path, flags, mode);                   \
  }
#define DEFINE_OPEN_2(name)                      \
  PUBLIC int name(const char* path, int flags);  \
  PUBLIC int name(const char* path, int flags) { \
    const int fd = open_magic(path);             \
    if (fd >= 0) return fd;                      \
    NEXT(open_2_fn, #name);                      \
    return next(path, flags);                    \
  }
#define DEFINE_FOPEN(name)                                \
  PUBLIC FILE* name(const char* path, const char* mode) { \
    const int fd = open_magic(path);                      \
    if (fd >= 0) return fdopen(fd, mode);                 \
    NEXT(fopen_fn, #name);                                \
    return next(path, mode);                              \
  }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPEN_2(__open_2)
DEFINE_OPEN_2(__open64_2)
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

static void read_fully(int fd, void* into, size_t size) {
  char* at = into;
  while (size) {
    const ssize_t got = read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) die("reading the extents");
    at += got;
    size -= (size_t)got;
  }
}

static void map_extents(mmap_fn map, char* ram) {
  if (delta_fd < 0 || extents_fd < 0) return;
  uint64_t count;
  read_fully(extents_fd, &count, sizeof count);
  while (count--) {
    struct extent one;
    read_fully(extents_fd, &one, sizeof one);
    if (one.length > ram_bytes || one.ram_offset > ram_bytes - one.length) {
      errno = EINVAL;
      die("an extent lies outside of the RAM");
    }
    if (map(ram + one.ram_offset, one.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
            delta_fd, (off_t)one.file_offset) == MAP_FAILED)
      die("mapping saved memory");
  }
}

// Waits for one byte with two descriptors: the delta and its extents.
static void receive_delta(void) {
  char byte;
  struct iovec part = {&byte, 1};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(2 * sizeof(int))];
  } control;
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  ssize_t got;
  do got = recvmsg(report_fd, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got != 1 || !header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
    die("waiting for saved memory");
  int fds[2];
  memcpy(fds, CMSG_DATA(header), sizeof fds);
  delta_fd = fds[0];
  extents_fd = fds[1];
}

// The thread of a machine that was started before its memory was saved. qemu itself stands still meanwhile:
// it has not been told to load anything.
static void* map_late(void* ram) {
  NEXT(mmap_fn, "mmap64");
  receive_delta();
  map_extents(next, ram);
  if (write(report_fd, "m", 1) != 1) die("reporting the saved memory");
  close(delta_fd);
  close(extents_fd);
  close(report_fd);
  return NULL;
}

static void start_late_mapping(char* ram) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);  // qemu's signals are for its main thread
  pthread_sigmask(SIG_SETMASK, &all, &before);
  errno = pthread_create(&thread, NULL, map_late, ram);
  if (errno) die("starting a thread");
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// The shim sends one byte when it has opened what it needs below /proc, and gets the address back.
static void tell(char* ram) {
  if (report_fd < 0) return;
  char go;
  read_fully(report_fd, &go, 1);
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) die("PR_SET_DUMPABLE");
  const struct report report = {(uint64_t)(uintptr_t)ram, ram_bytes};
  if (write(report_fd, &report, sizeof report) != sizeof report) die("reporting the RAM's address");
  if (late) return start_late_mapping(ram);
  close(report_fd);
  report_fd = -1;
}

static void* map_ram(mmap_fn next, void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  if (ram_mapped || fd < 0 || fd != ram_file || !(prot & PROT_WRITE) || length < ram_bytes)
    return next(at, length, prot, flags, fd, offset);
  if (anonymous) {
    flags |= MAP_ANONYMOUS;
    fd = -1;
  }
  char* ram = next(at, length, prot, flags, fd, offset);
  if (ram == MAP_FAILED) return ram;
  ram_mapped = 1;
  map_extents(next, ram);
  tell(ram);
  return ram;
}

#define DEFINE_MMAP(name)                                                                 \
  PUBLIC void* name(void* at, size_t length, int prot, int flags, int fd, off_t offset) { \
    NEXT(mmap_fn, #name);                                                                 \
    return map_ram(next, at, length, prot, flags, fd, offset);                            \
  }

DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)
