#include "agent/tasks.h"

namespace drupe::agent {

Result<std::string> run_task(OpenKind, const FileOptions&) {
  return fail(ErrorCode::kUnsupported, "not there yet");
}

}  // namespace drupe::agent
