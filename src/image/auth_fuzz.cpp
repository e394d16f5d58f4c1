// What a registry says in headers, and Docker's configuration file. The first byte chooses the reader.
#include "base/bytes.h"
#include "image/auth.h"
#include "image/http.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(drupe::as_text({data + 1, size - 1}));
  switch (data[0] % 4) {
    case 0:
      static_cast<void>(drupe::parse_challenges(text));
      break;
    case 1:
      static_cast<void>(drupe::credentials_from(text, "host.example"));
      break;
    case 2:
      static_cast<void>(drupe::parse_url(text));
      break;
    default:
      static_cast<void>(drupe::parse_url(drupe::resolve_url("https://host.example/v2/x?y", text)));
      break;
  }
  return 0;
}
