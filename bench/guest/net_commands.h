// What the network rows do inside a guest: connections to the benchmark's server, timed.
#pragma once

// Runs one command, "connect N", "download MIB", "upload MIB" or "hold N", against ADDRESS:PORT and prints
// its numbers, one on a line: microseconds of each connect, MiB per second, or how many of N connections were
// open at once. Returns 0 when it worked.
int net_work(const char* address, int port, const char* command, long count);
