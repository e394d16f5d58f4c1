// Runs mmdebstrap and gives the tar stream that it writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/progress.h"
#include "image/source.h"

namespace drupe {

struct MmdebstrapRequest {
  std::string mode;  ///< "root" or "unshare".
  std::string suite;
  std::vector<std::string> packages;
  std::vector<std::string> sources;  ///< Lines of sources.list.
  std::vector<std::string> hooks{};  ///< Run when the packages are installed, in this order.
  OnProgress on_progress{};          ///< Told of its steps, until its first bytes come.
  CancelFlag cancel = nullptr;
};

/// Starts it; it ends at the latest when the calling thread does. The source's last read() fails unless it
/// ended well, with the end of its messages; destroying the source earlier kills it and removes what it has
/// made.
Result<std::unique_ptr<ByteSource>> run_mmdebstrap(const MmdebstrapRequest& request);

}  // namespace drupe
