// Gives a guest something to save, and pumps bytes:
//   burden memory MIB        touches that much memory, says "ready" and keeps it
//   burden disk PATH MIB     writes a file past the page cache and syncs it
//   burden cached PATH MIB   the same through the page cache, which then holds it
//   burden out MIB           writes that much to stdout
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kBlock = 1 << 20 };

// Neither zero nor equal pages: nothing that a saver could leave out.
static void scramble(uint64_t* words, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; ++i) words[i] = (i + seed) * 0x9e3779b97f4a7c15ULL;
}

static int keep_memory(size_t mib) {
  char* memory = mmap(0, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  scramble((uint64_t*)memory, (mib << 20) / sizeof(uint64_t), 1);
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  while (1) pause();
}

static int write_disk(const char* path, size_t mib, int flags) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0600);
  void* block = 0;
  if (fd < 0 || posix_memalign(&block, 4096, kBlock) != 0) return 1;
  scramble(block, kBlock / sizeof(uint64_t), 7);
  for (size_t i = 0; i < mib; ++i) {
    memcpy(block, &i, sizeof i);
    if (write(fd, block, kBlock) != kBlock) return 1;
  }
  return fsync(fd) == 0 ? 0 : 1;
}

static int pump(size_t mib) {
  static char block[kBlock];
  memset(block, 'x', sizeof block);
  for (size_t i = 0; i < mib; ++i)
    for (size_t done = 0; done < kBlock;) {
      const ssize_t got = write(STDOUT_FILENO, block + done, kBlock - done);
      if (got <= 0) return 1;
      done += (size_t)got;
    }
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "memory") == 0) return keep_memory((size_t)atol(argv[2]));
  if (argc == 4 && strcmp(argv[1], "disk") == 0) return write_disk(argv[2], (size_t)atol(argv[3]), O_DIRECT);
  if (argc == 4 && strcmp(argv[1], "cached") == 0) return write_disk(argv[2], (size_t)atol(argv[3]), 0);
  if (argc == 3 && strcmp(argv[1], "out") == 0) return pump((size_t)atol(argv[2]));
  return 2;
}
