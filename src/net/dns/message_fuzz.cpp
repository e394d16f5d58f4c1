// DNS messages from hostile bytes: what is read can be written, and read again to the same.
#include <cstdlib>

#include "net/dns/framing.h"
#include "net/dns/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drupe;
  using namespace drupe::net::dns;
  TcpFraming framing;
  framing.feed({data, size});
  while (framing.next()) {
  }
  const auto message = parse_message({data, size});
  if (!message) return 0;
  for (const Question& question : message->questions) static_cast<void>(question.name.text());
  const std::string bytes = write_message(*message, 65535);
  const auto again = parse_message(as_bytes(bytes));
  if (!again || again->answers.size() > message->answers.size()) std::abort();
  if (!again->truncated && write_message(*again, 65535) != bytes) std::abort();
  if (write_message(*message, 512).size() > 600) std::abort();
  return 0;
}
