// Every decoder of both sides. What decodes must encode to the same bytes.
#include <cstddef>
#include <cstdint>

#include "protocol/messages.h"

namespace {

template <class M>
void check(drupe::ByteView bytes) {
  const auto message = M::decode(bytes);
  if (message && message->encode() != drupe::as_text(bytes)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drupe;
  if (size == 0) return 0;
  const ByteView bytes(data + 1, size - 1);
  switch (data[0] % 17) {
    case 0:
      check<HelloReply>(bytes);
      break;
    case 1:
      check<SetUpRequest>(bytes);
      break;
    case 2:
      check<FreezeRequest>(bytes);
      break;
    case 3:
      check<GuestStats>(bytes);
      break;
    case 4:
      check<ProcessList>(bytes);
      break;
    case 5:
      check<SignalExecRequest>(bytes);
      break;
    case 6:
      check<ShutdownRequest>(bytes);
      break;
    case 7:
      check<SetHostRequest>(bytes);
      break;
    case 8:
      check<OpenRequest>(bytes);
      break;
    case 9:
      check<OpenedReply>(bytes);
      break;
    case 10: {
      [[maybe_unused]] const auto facts = ExitFacts::decode(bytes);  // unknown error codes change
      break;
    }
    case 11: {
      [[maybe_unused]] const auto reply = decode_reply(bytes);
      break;
    }
    case 12: {
      auto assembler = OpenAssembler::begin(bytes);
      if (assembler && assembler->complete()) [[maybe_unused]]
        const auto open = assembler->decode();
      break;
    }
    case 13: {
      RecordParser parser;
      [[maybe_unused]] const auto fed = parser.feed(bytes, [](RecordKind, ByteView body) -> Status {
        ByteReader entry(body);
        [[maybe_unused]] const auto stat = StatResult::read(entry);
        ByteReader change(body);
        [[maybe_unused]] const auto event = WatchEvent::read(change);
        return {};
      });
      break;
    }
    case 14:
      check<SetNetworkRequest>(bytes);
      break;
    default:
      [[maybe_unused]] const auto signal = decode_signal(bytes);
      break;
  }
  return 0;
}
