// TLS hellos from hostile bytes: the verdict does not depend on where they are cut, and nothing unjudged is
// released.
#include <cstdlib>

#include "net/inspect/tls_reader.h"

namespace {

using namespace drupe;
using namespace drupe::net;

bool judge(std::string_view name) {
  return name.size() % 2 == 0;
}

struct Outcome {
  Inspection::Verdict verdict = Inspection::Verdict::kNeedMore;
  std::uint64_t release = 0;
  std::string name;
};

Outcome run(ByteView bytes, std::size_t step) {
  TlsReader reader(judge, {});
  Outcome out;
  std::uint64_t given = 0;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const ByteView part = bytes.subspan(at, std::min(step, bytes.size() - at));
    const Inspection now = reader.feed(part);
    given += part.size();
    if (now.release > given || now.release < out.release) std::abort();
    if (now.release != 0 && !judge(reader.name())) std::abort();
    out = {now.verdict, now.release, reader.name()};
    if (now.verdict == Inspection::Verdict::kRefuse) break;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  static_cast<void>(parse_client_hello({data, size}));
  const std::size_t step = static_cast<std::size_t>(data[0]) % 61 + 1;
  const ByteView bytes(data + 1, size - 1);
  const Outcome whole = run(bytes, bytes.size() + 1);
  const Outcome cut = run(bytes, step);
  if (whole.verdict != cut.verdict || whole.release != cut.release || whole.name != cut.name) std::abort();
  return 0;
}
