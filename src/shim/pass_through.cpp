#include "shim/pass_through.h"

#include "shim/messages.h"

namespace drupe {

Status forward_control_frame(GuestLink& link, std::uint32_t stream, const Frame& frame) {
  if (frame.type == FrameType::kSignal) {
    DRUPE_ASSIGN(const SignalPayload signal, decode_signal(frame.payload));
    link.send(FrameType::kSignal, stream, encode_signal(signal));
    return {};
  }
  if (frame.type == FrameType::kResize) {
    DRUPE_ASSIGN(const ResizePayload size, decode_resize(frame.payload));
    link.send(FrameType::kResize, stream, encode_resize(size));
    return {};
  }
  return fail(ErrorCode::kIntegrity, "A client sent a frame that does not belong on a stream");
}

Result<std::unique_ptr<ClientSideStream>> PassThrough::open(GuestLink& link, const ClientStreamRef& client,
                                                            const OpenRequest& request) {
  auto stream = std::make_unique<PassThrough>(link, client);
  DRUPE_ASSIGN(stream->id_, link.open(request.encode(), *stream));
  return stream;
}

Status PassThrough::on_client_frame(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kData:
      return link_.send_data(id_, as_text(frame.payload));
    case FrameType::kEof:
      link_.send(FrameType::kEof, id_, {});
      return {};
    case FrameType::kCredit: {
      DRUPE_ASSIGN(const std::uint32_t bytes, decode_credit(frame.payload));
      return link_.grant(id_, frame.channel, bytes);
    }
    default:
      return forward_control_frame(link_, id_, frame);
  }
}

void PassThrough::on_client_gone(std::string_view reason) {
  link_.reset(id_, reason);
}

void PassThrough::on_guest_frame(const Frame& frame) {
  if (frame.type == FrameType::kExit) return client_.exit(as_text(frame.payload));
  if (frame.type == FrameType::kReset)
    return client_.reset(
        Error{ErrorCode::kGuest, std::string(as_text(frame.payload).substr(0, 1024)), {}, 0});
  client_.send(frame.type, frame.channel, as_text(frame.payload));
}

}  // namespace drupe
