// PID 1 of the yardstick for bulk transfers: copies raw bytes over the bulk port, no frames, no credits. One
// line on the control port starts a copy: "send MIB" or "receive MIB"; the answer is a line when it is done.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "first_process.h"

enum { kBlock = 65536 };
static char block[kBlock];

static int find_port(const char* wanted) {
  DIR* ports = opendir("/sys/class/virtio-ports");
  struct dirent* entry;
  int found = -1;
  while (ports && found < 0 && (entry = readdir(ports))) {
    char path[320];
    char name[64] = "";
    snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
    FILE* file = fopen(path, "re");
    if (!file) continue;
    const int got = fscanf(file, "%63s", name);
    fclose(file);
    snprintf(path, sizeof path, "/dev/%s", entry->d_name);
    if (got == 1 && strcmp(name, wanted) == 0) found = open(path, O_RDWR | O_CLOEXEC);
  }
  if (ports) closedir(ports);
  return found;
}

static int open_port(const char* wanted) {
  for (int tries = 0; tries < 5000; ++tries) {
    const int fd = find_port(wanted);
    if (fd >= 0) return fd;
    usleep(1000);
  }
  return -1;
}

static void copy(int port, size_t bytes, int out) {
  while (bytes > 0) {
    const size_t size = bytes < kBlock ? bytes : kBlock;
    const ssize_t got = out ? write(port, block, size) : read(port, block, size);
    if (got <= 0)
      usleep(1000);
    else
      bytes -= (size_t)got;
  }
}

int main(void) {
  mount_and_load();
  const int control = open_port("drupe.control");
  const int bulk = open_port("drupe.bulk");
  if (control < 0 || bulk < 0 || write(control, "ready\n", 6) != 6) return 1;
  char line[64];
  size_t used = 0;
  while (1) {
    char c;
    if (read(control, &c, 1) != 1) {
      usleep(1000);
      continue;
    }
    if (c != '\n') {
      if (used < sizeof line - 1) line[used++] = c;
      continue;
    }
    line[used] = 0;
    used = 0;
    unsigned long mib = 0;
    if (sscanf(line, "send %lu", &mib) == 1) copy(bulk, mib << 20, 1);
    if (sscanf(line, "receive %lu", &mib) == 1) copy(bulk, mib << 20, 0);
    if (write(control, "done\n", 5) != 5) return 1;
  }
}
