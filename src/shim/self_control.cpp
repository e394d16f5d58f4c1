#include "shim/self_control.h"

namespace drupe {
namespace {

constexpr std::size_t kMostLine = 16;

}  // namespace

SelfControl::~SelfControl() {
  if (open_) link_.reset(id_, "the sandbox ends");
}

Status SelfControl::open() {
  OpenRequest request;
  request.kind = OpenKind::kSelf;
  DRUPE_ASSIGN(id_, link_.open(request.encode(), *this));
  open_ = true;
  return {};
}

void SelfControl::on_guest_frame(const Frame& frame) {
  if (frame.type == FrameType::kData) {
    take(frame.payload);
    // What it has sent was granted, so the grant cannot be too much.
    static_cast<void>(link_.grant(id_, Channel::kStdout, static_cast<std::uint32_t>(frame.payload.size())));
    return;
  }
  if (frame.type != FrameType::kExit && frame.type != FrameType::kReset) return;
  open_ = false;
  std::string why = "the guest has reset it";
  if (frame.type == FrameType::kExit) {
    const auto facts = ExitFacts::decode(frame.payload);
    why = !facts ? facts.error().message : facts->error ? facts->error->message : "it has ended";
  }
  on_ended_(std::move(why));
}

void SelfControl::take(ByteView bytes) {
  for (const char c : as_text(bytes)) {
    if (c != '\n') {
      if (line_.size() < kMostLine) line_ += c;
      continue;
    }
    if (line_ == "pause") on_wish_(Wish::kPause);
    if (line_ == "delete") on_wish_(Wish::kDelete);
    line_.clear();
  }
}

}  // namespace drupe
