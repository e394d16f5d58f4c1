// Image names: what is accepted is harmless in paths, and its canonical form means itself.
#include <cstdlib>

#include "base/bytes.h"
#include "image/reference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto reference = drupe::parse_reference(drupe::as_text({data, size}));
  if (!reference) return 0;
  const std::string canonical = reference->canonical();
  if (canonical.size() > drupe::kReferenceLimit || canonical.find("/.") != std::string::npos ||
      canonical.find('+') != std::string::npos)
    std::abort();
  const auto again = drupe::parse_reference(canonical);
  if (!again || again->canonical() != canonical) std::abort();
  const auto familiar = drupe::parse_reference(reference->familiar());
  if (!familiar || familiar->canonical() != canonical) std::abort();
  return 0;
}
