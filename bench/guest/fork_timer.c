// Times fork + exec + wait of a program inside the guest: `fork_timer PROGRAM COUNT` prints one number of
// microseconds for each round.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = atoi(argv[2]); i > 0; --i) {
    const double begun = now_us();
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      execl(argv[1], argv[1], (char*)0);
      _exit(127);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    printf("%.1f\n", now_us() - begun);
  }
  return 0;
}
