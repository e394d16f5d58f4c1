// Plays a hypervisor process that has been taken over: tries to reach what belongs to other sandboxes and
// says what worked. The plan ("pid N", "file NAME PATH") is in a file beside the program, if that can be read
// at all; without it the fixed tries run.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static void say(const char* what, const char* name) {
  dprintf(2, "TAKEN %s %s\n", what, name);
}

static void try_file(const char* name, const char* path) {
  int fd = open(path, O_RDONLY);
  if (fd >= 0) say("reached read", name);
  if (fd >= 0) close(fd);
  fd = open(path, O_WRONLY);
  if (fd >= 0) say("reached write", name);
  if (fd >= 0) close(fd);
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  if (s < 0) return;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (strlen(path) < sizeof address.sun_path && connect(s, (struct sockaddr*)&address, sizeof address) == 0)
    say("reached connect", name);
  close(s);
}

static void try_process(int pid) {
  char path[64], name[64];
  snprintf(name, sizeof name, "process %d", pid);
  snprintf(path, sizeof path, "/proc/%d/mem", pid);
  int fd = open(path, O_RDWR);
  if (fd >= 0) say("reached mem of", name);
  if (fd >= 0) close(fd);
  char byte;
  struct iovec local = {&byte, 1}, remote = {(void*)0x400000, 1};
  if (syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0) == 1) say("reached memory of", name);
  if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) say("reached ptrace of", name);
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd >= 0) {
    if (syscall(SYS_pidfd_getfd, pidfd, 3, 0) >= 0) say("reached descriptors of", name);
    close(pidfd);
  }
}

// Every process in sight but itself and its parent, when /proc is in sight.
static void try_processes(void) {
  DIR* proc = opendir("/proc");
  if (!proc) return;
  for (struct dirent* entry; (entry = readdir(proc));) {
    int pid = 0;
    if (sscanf(entry->d_name, "%d", &pid) == 1 && pid != getpid()) try_process(pid);
  }
  closedir(proc);
}

// Inherited descriptors may be used; but none may be a writable file shared with others, and no folder.
static void try_descriptors(void) {
  for (int fd = 3; fd < 256; fd++) {
    struct stat status;
    if (fstat(fd, &status) != 0) continue;
    char name[64];
    snprintf(name, sizeof name, "descriptor %d", fd);
    if (S_ISDIR(status.st_mode) && openat(fd, "..", O_RDONLY) >= 0 &&
        openat(fd, "record.json", O_RDONLY) >= 0)
      say("reached folder through", name);
    if (S_ISREG(status.st_mode) && status.st_nlink > 1) {
      if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) say("reached shared file writable by", name);
      char path[64];
      snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      if (open(path, O_RDWR) >= 0) say("reached shared file by reopening", name);
      if (fchmod(fd, 0666) == 0) say("reached mode of", name);
    }
  }
}

int main(int argc, char** argv) {
  // Asked for its version or for help by whoever probes it: answers like the real one.
  for (int i = 1; i < argc; i++)
    if (strstr(argv[i], "version")) return puts("QEMU emulator version 7.2.22") < 0;
  say("began", "");
  char path[4096];
  const char* slash = argc > 0 ? strrchr(argv[0], '/') : 0;
  snprintf(path, sizeof path, "%.*splan", slash ? (int)(slash - argv[0] + 1) : 0, argv[0]);
  FILE* plan = fopen(path, "r");
  if (plan) {
    char name[64], target[4000];
    int pid;
    while (fgets(path, sizeof path, plan)) {
      if (sscanf(path, "pid %d", &pid) == 1) try_process(pid);
      if (sscanf(path, "file %63s %3999s", name, target) == 2) try_file(name, target);
    }
    fclose(plan);
  }
  try_processes();
  try_descriptors();
  try_file("shadow", "/etc/shadow");
  try_file("root", "/root");
  try_file("home", "/home");
  if (kill(getppid(), 0) == 0 && getppid() != 0 && getppid() != 1) say("sees", "its parent");
  if (socket(AF_INET, SOCK_STREAM, 0) >= 0) say("reached socket", "inet");
  if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) > 0) say("note", "may fork");
  if (setuid(0) == 0 && geteuid() == 0) say("reached uid", "0");
  if (mkdir("/tmp/taken", 0700) == 0) say("note", "writes its own /tmp");
  say("ended", "");
  return 1;
}
