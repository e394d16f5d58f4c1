// The ledger (protocol/net_ledger.h) as the network process keeps it.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/log/egress_log.h"
#include "net/stack/packet_address.h"
#include "protocol/net_ledger.h"

namespace drupe::net {

/// What an earlier process has left; checked.
struct LedgerRemains {
  std::vector<FlowKey> flows;
  std::vector<LogEntry> entries;  ///< The newest, without a gap, oldest first.
};

/// A mapping. Writing costs no system call. One thread.
class LedgerMap {
 public:
  /// The error: it is no ledger of this version, or its size could change.
  static Result<LedgerMap> open(const UniqueFd& ledger);
  /// Nothing is kept.
  LedgerMap() = default;

  /// Takes out what is there. Hostile: an earlier process may have been taken over.
  [[nodiscard]] LedgerRemains take();
  void set_used(std::uint64_t bytes);
  /// `key` nullptr: the flow is gone. An index that has no place is left out.
  void set_flow(FlowId flow, const FlowKey* key);
  /// A new entry, or one whose count has changed.
  void set_entry(const LogEntry& entry);

 private:
  struct Unmap {
    void operator()(Ledger* ledger) const;
  };
  std::unique_ptr<Ledger, Unmap> ledger_;
};

}  // namespace drupe::net
