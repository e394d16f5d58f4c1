#include "agent/order.h"

namespace drupe::agent {

std::string Order::encode(const ExecOptions& options, const Defaults& defaults) {
  OpenRequest request;
  request.exec = options;
  const std::string command = request.encode();
  std::size_t size = 4 + command.size() + 4 + 4 + defaults.user.size() + 4 + defaults.cwd.size();
  for (const auto& entry : defaults.env) size += 4 + entry.size();
  return ByteWriter()
      .number(static_cast<std::uint32_t>(size))
      .text(command)
      .texts(defaults.env)
      .text(defaults.user)
      .text(defaults.cwd)
      .take();
}

Result<Order> Order::decode(ByteView bytes) {
  ByteReader reader(bytes);
  const std::string command = reader.text();
  Order order;
  order.defaults.env = reader.texts();
  order.defaults.user = reader.text();
  order.defaults.cwd = reader.text();
  if (!reader.done()) return fail(ErrorCode::kIntegrity, "An order for a command is malformed");
  DRUPE_ASSIGN(OpenRequest request, OpenRequest::decode(as_bytes(command)));
  if (request.kind != OpenKind::kExec) return fail(ErrorCode::kIntegrity, "An order is no command");
  order.options = std::move(request.exec);
  return order;
}

}  // namespace drupe::agent
