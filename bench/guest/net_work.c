// `net-work ADDRESS PORT COMMAND COUNT`: see net_commands.h.
#include <stdlib.h>

#include "net_commands.h"

int main(int argc, char** argv) {
  return argc == 5 ? net_work(argv[1], atoi(argv[2]), argv[3], atol(argv[4])) : 2;
}
