#include "net/program/flow_inspector.h"

#include <algorithm>

namespace drupe::net {

// False: the connection ends.
bool FlowInspector::note(const Inspection& inspection) {
  released_ = std::max(released_, inspection.release);
  if (inspection.verdict == Inspection::Verdict::kRefuse) refused_ = true;
  return !refused_;
}

Inspector::Verdict FlowInspector::look(ByteView pending, bool /*end*/) {
  const auto known = static_cast<std::size_t>(std::min<std::uint64_t>(shown_ - passed_, pending.size()));
  const ByteView fresh = pending.subspan(known);
  if (!fresh.empty()) {
    shown_ += fresh.size();
    note(admission_.on_client(fresh, std::chrono::steady_clock::now()));
  }
  Verdict verdict;
  verdict.refuse = refused_;
  if (refused_) return verdict;
  verdict.pass = static_cast<std::size_t>(std::min<std::uint64_t>(released_ - passed_, pending.size()));
  passed_ += verdict.pass;
  verdict.finished = admission_.opaque() && verdict.pass == pending.size();
  return verdict;
}

bool FlowInspector::on_world(ByteView bytes) {
  return note(admission_.on_server(bytes, std::chrono::steady_clock::now()));
}

}  // namespace drupe::net
