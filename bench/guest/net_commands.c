#define _GNU_SOURCE
#include "net_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

enum { kBlock = 65536 };
static char block[kBlock];

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int connected(const struct sockaddr_in* to) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (const struct sockaddr*)to, sizeof *to) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static int connects(const struct sockaddr_in* to, long count) {
  for (; count > 0; --count) {
    const double begun = now_us();
    const int fd = connected(to);
    const double took = now_us() - begun;
    if (fd < 0) return 1;
    close(fd);
    printf("%.1f\n", took);
  }
  return 0;
}

// The server hears "d MIB\n" and sends as much, or "u MIB\n", takes as much and answers one byte.
static int transfer(const struct sockaddr_in* to, long mib, int up) {
  const int fd = connected(to);
  if (fd < 0) return 1;
  char line[32];
  const int size = snprintf(line, sizeof line, "%c %ld\n", up ? 'u' : 'd', mib);
  if (write(fd, line, (size_t)size) != size) return 1;
  const double begun = now_us();
  for (long long left = (long long)mib << 20; left > 0;) {
    const size_t most = left < kBlock ? (size_t)left : kBlock;
    const ssize_t moved = up ? write(fd, block, most) : read(fd, block, most);
    if (moved <= 0) return 1;
    left -= moved;
  }
  if (up && read(fd, block, 1) != 1) return 1;
  printf("%.3f\n", (double)mib / ((now_us() - begun) / 1e6));
  close(fd);
  return 0;
}

// The server sends back the byte after "e\n".
static int hold(const struct sockaddr_in* to, long count) {
  const struct rlimit limit = {(rlim_t)count + 64, (rlim_t)count + 64};
  setrlimit(RLIMIT_NOFILE, &limit);
  int* fds = calloc((size_t)count, sizeof *fds);
  long open = 0;
  for (long i = 0; fds && i < count; ++i) {
    fds[i] = connected(to);
    if (fds[i] < 0 || write(fds[i], "e\nx", 3) != 3) break;
  }
  // All at once are open now; each has to answer.
  for (long i = 0; fds && i < count && fds[i] > 0; ++i) {
    char c = 0;
    if (read(fds[i], &c, 1) == 1 && c == 'x') ++open;
  }
  printf("%ld\n", open);
  return open == count ? 0 : 1;
}

int net_work(const char* address, int port, const char* command, long count) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  if (inet_pton(AF_INET, address, &to.sin_addr) != 1) return 2;
  if (strcmp(command, "connect") == 0) return connects(&to, count);
  if (strcmp(command, "download") == 0) return transfer(&to, count, 0);
  if (strcmp(command, "upload") == 0) return transfer(&to, count, 1);
  if (strcmp(command, "hold") == 0) return hold(&to, count);
  return 2;
}
