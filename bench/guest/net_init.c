// PID 1 of the yardstick for the network: a guest on qemu's built-in user network. A line "COMMAND COUNT" on
// the console does the work of net_commands.h against the host; the answer is its output and a line "status
// N".
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <net/route.h>

#include "first_process.h"
#include "net_commands.h"

// Of qemu's user network.
static const char kGuest[] = "10.0.2.15", kMask[] = "255.255.255.0", kHost[] = "10.0.2.2";

static struct sockaddr inet(const char* text) {
  struct sockaddr_in in = {.sin_family = AF_INET};
  inet_pton(AF_INET, text, &in.sin_addr);
  struct sockaddr out;
  memcpy(&out, &in, sizeof out);
  return out;
}

static int set_up(void) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {0};
  strcpy(request.ifr_name, "eth0");
  for (int tries = 0; ioctl(fd, SIOCGIFINDEX, &request) != 0; ++tries) {
    if (tries == 5000) return 1;
    usleep(1000);
  }
  request.ifr_addr = inet(kGuest);
  if (ioctl(fd, SIOCSIFADDR, &request) != 0) return 2;
  request.ifr_netmask = inet(kMask);
  if (ioctl(fd, SIOCSIFNETMASK, &request) != 0) return 3;
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) return 4;
  struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
  route.rt_dst = inet("0.0.0.0");
  route.rt_genmask = inet("0.0.0.0");
  route.rt_gateway = inet(kHost);
  return ioctl(fd, SIOCADDRT, &route) == 0 ? 0 : 5;
}

int main(void) {
  mount_and_load();
  const int console = open("/dev/ttyS0", O_RDWR | O_NOCTTY);
  if (console < 0) return 1;
  struct termios raw;
  tcgetattr(console, &raw);
  cfmakeraw(&raw);
  tcsetattr(console, TCSANOW, &raw);
  dup2(console, STDIN_FILENO);
  dup2(console, STDOUT_FILENO);
  printf("ready %d\n", set_up());
  fflush(stdout);
  char command[32];
  int port = 0;
  long count = 0;
  while (scanf("%31s %d %ld", command, &port, &count) == 3) {
    printf("status %d\n", net_work(kHost, port, command, count));
    fflush(stdout);
  }
  return 0;
}
