#define _GNU_SOURCE
#include "first_process.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static void load_modules(void) {
  FILE* order = fopen("/mods/order", "re");
  char name[64];
  while (order && fscanf(order, "%63s", name) == 1) {
    char path[96];
    snprintf(path, sizeof path, "/mods/%s.ko", name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) syscall(SYS_finit_module, fd, "", 0);
    close(fd);
  }
}

void mount_and_load(void) {
  mount("proc", "/proc", "proc", 0, "");
  mount("sys", "/sys", "sysfs", 0, "");
  mount("dev", "/dev", "devtmpfs", 0, "");
  load_modules();
}
