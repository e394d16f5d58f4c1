#include "shim/guest_trust.h"

#include <algorithm>
#include <optional>

#include "protocol/messages.h"

namespace drupe {
namespace {

class TrustStream final : public GuestStream {
 public:
  TrustStream(GuestLink& link, std::string_view rest) : link_(link), rest_(rest) {}
  ~TrustStream() override { link_.reset(id_, "took too long"); }

  Status run(EventLoop& loop, Deadline deadline) {
    OpenRequest request;
    request.kind = OpenKind::kTrust;
    DRUPE_ASSIGN(id_, link_.open(request.encode(), *this));
    DRUPE_TRY(send());
    DRUPE_ASSIGN(const bool done,
                 loop.run_until([this] { return result_.has_value() || link_.broken(); }, deadline));
    if (result_) return *result_;
    if (done) return fail(ErrorCode::kVmLost, "The machine ended");
    return fail(ErrorCode::kTimeout, "The guest took too long");
  }

  void on_guest_frame(const Frame& frame) override {
    if (frame.type == FrameType::kCredit) {
      if (auto sent = send(); !sent && !result_) result_ = std::move(sent);
    } else if (frame.type == FrameType::kReset) {
      result_ = fail(ErrorCode::kGuest, "The guest refused them");
    } else if (frame.type == FrameType::kExit) {
      const auto facts = ExitFacts::decode(frame.payload);
      if (!facts)
        result_ = std::unexpected(facts.error());
      else if (facts->error)
        result_ = std::unexpected(*facts->error);
      else
        result_ = Status();
    }
  }

 private:
  Status send() {
    if (ended_) return {};
    while (!rest_.empty()) {
      const std::size_t part = std::min({rest_.size(), link_.may_send(id_), kMaxPayload});
      if (part == 0) return {};
      DRUPE_TRY(link_.send_data(id_, rest_.substr(0, part)));
      rest_.remove_prefix(part);
    }
    ended_ = true;
    link_.send(FrameType::kEof, id_, {});
    return {};
  }

  GuestLink& link_;
  std::string_view rest_;
  std::uint32_t id_ = 0;
  bool ended_ = false;
  std::optional<Status> result_;
};

}  // namespace

Status give_trust(EventLoop& loop, GuestLink& link, std::string_view bundle, Deadline deadline) {
  auto given = TrustStream(link, bundle).run(loop, deadline);
  if (given) return given;
  return std::unexpected(
      std::move(given).error().in("The sandbox could not be given the host's certificate authorities"));
}

}  // namespace drupe
