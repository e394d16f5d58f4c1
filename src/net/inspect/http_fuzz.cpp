// HTTP requests from hostile bytes: the verdict does not depend on where they are cut, and nothing unjudged
// is released.
#include <cstdlib>

#include "net/inspect/name_inspector.h"

namespace {

using namespace drupe;
using namespace drupe::net;

struct Outcome {
  Inspection::Verdict verdict = Inspection::Verdict::kNeedMore;
  std::uint64_t release = 0;
};

Outcome run(NameCheck check, ByteView bytes, ByteView server, std::size_t step) {
  bool judged = false;
  NameInspector reader(check,
                       [&](std::string_view name) {
                         judged = true;
                         return name == "a";
                       },
                       {});
  Outcome out;
  std::uint64_t given = 0;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const ByteView part = bytes.subspan(at, std::min(step, bytes.size() - at));
    const Inspection now = reader.on_client(part);
    given += part.size();
    if (now.release > given || now.release < out.release) std::abort();
    if (check == NameCheck::kRequired && now.release != 0 && !judged) std::abort();
    out = {now.verdict, now.release};
    if (now.verdict == Inspection::Verdict::kRefuse) return out;
  }
  for (std::size_t at = 0; at < server.size() && reader.wants_server(); at += step) {
    const Inspection now = reader.on_server(server.subspan(at, std::min(step, server.size() - at)));
    if (now.release > given || now.release < out.release) std::abort();
    out = {now.verdict, now.release};
  }
  return out;
}

}  // namespace

/// Input: how to cut, the check, the size of the client's part; the client's bytes; the server's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::size_t step = static_cast<std::size_t>(data[0]) % 61 + 1;
  const auto check = static_cast<NameCheck>(data[1] % 4);
  const std::size_t client =
      std::min<std::size_t>(static_cast<std::size_t>(data[2]) * 8 + data[3] % 8, size - 4);
  const ByteView bytes(data + 4, client);
  const ByteView server(data + 4 + client, size - 4 - client);
  const Outcome whole = run(check, bytes, server, size);
  const Outcome cut = run(check, bytes, server, step);
  if (whole.verdict != cut.verdict || whole.release != cut.release) std::abort();
  return 0;
}
