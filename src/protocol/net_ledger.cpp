#include "protocol/net_ledger.h"

#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace drupe::net {

Result<UniqueFd> make_ledger() {
  UniqueFd fd(::memfd_create("drupe-net-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return fail_sys("Creating the network's ledger failed", errno);
  const std::array<std::uint32_t, 2> head{kLedgerMagic, kLedgerVersion};
  if (::ftruncate(fd.get(), sizeof(Ledger)) != 0 ||
      ::pwrite(fd.get(), head.data(), sizeof head, 0) != static_cast<ssize_t>(sizeof head) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail_sys("Sizing the network's ledger failed", errno);
  return fd;
}

std::uint64_t ledger_used_bytes(int ledger) {
  std::uint64_t used = 0;
  const ssize_t got = ::pread(ledger, &used, sizeof used, offsetof(Ledger, used_bytes));
  return got == static_cast<ssize_t>(sizeof used) ? used : 0;
}

}  // namespace drupe::net
