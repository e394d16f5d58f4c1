#include "cli/each.h"

namespace drupe::cli {

int for_each_sandbox(Session& session, const Arguments& words,
                     const std::function<Result<std::string>(Engine&, const SandboxInfo&)>& act) {
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  int status = 0;
  for (const std::string& word : words) {
    auto sandbox = (*engine)->find(word);
    if (!sandbox) {
      status = session.fail_with(sandbox.error(), 1);
      continue;
    }
    auto done = act(**engine, *sandbox);
    session.progress().finish();
    if (!done) {
      status = session.fail_with(done.error(), 1);
    } else if (!done->empty() && session.print(*done + "\n") != 0) {
      return 1;
    }
  }
  return status;
}

}  // namespace drupe::cli
