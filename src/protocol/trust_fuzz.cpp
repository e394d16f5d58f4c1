// Any bytes: no crash, what is accepted is written back as it was, and could name no other file.
#include <cstdlib>

#include "protocol/trust.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const drupe::ByteView bytes(data, size);
  const auto bundle = drupe::TrustBundle::decode(bytes);
  if (!bundle) return 0;
  if (bundle->encode() != drupe::as_text(bytes)) std::abort();
  for (const auto& authority : bundle->authorities)
    for (const std::string* name : {&authority.id, &authority.subject_hash})
      if (name->empty() || name->find_first_not_of("0123456789abcdef") != std::string::npos) std::abort();
  return 0;
}
