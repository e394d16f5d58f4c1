#include "shim/main_command.h"

#include <algorithm>

#include "shim/pass_through.h"

namespace drupe {

class MainCommand::Attachment final : public ClientSideStream {
 public:
  Attachment(MainCommand* main, const ClientStreamRef& client) : main_(main), client_(client) {
    for (std::size_t i = 0; i < kChannels; ++i) taken_[i] = main->received_[i] + kInitialCredit;
  }
  ~Attachment() override {
    if (main_ != nullptr) main_->detach(this);
  }

  Status on_client_frame(const Frame& frame) override {
    if (main_ == nullptr) return {};
    switch (frame.type) {
      case FrameType::kData:
        if (main_->stdin_owner_ != this) return {};  // It was told by the absence of credit; nothing is kept.
        DRUPE_TRY(stdin_.received(frame.payload.size()));
        return main_->take_stdin(as_text(frame.payload));
      case FrameType::kEof:
        if (main_->stdin_owner_ != this) return {};
        main_->eof_pending_ = true;
        main_->flush_stdin();
        return {};
      case FrameType::kCredit:
        return on_credit(frame);
      default:
        if (main_->link_ == nullptr) return {};
        return forward_control_frame(*main_->link_, main_->id_, frame);
    }
  }

  void on_client_gone(std::string_view) override {
    if (main_ != nullptr) main_->detach(this);
  }

  void stdin_consumed(std::size_t bytes) {
    if (const std::uint32_t grant = stdin_.consumed(bytes); grant != 0)
      client_.send(FrameType::kCredit, Channel::kStdin, encode_credit(grant));
  }

  MainCommand* main_;
  ClientStreamRef client_;
  std::array<std::uint64_t, kChannels> taken_{};  ///< Up to here this client takes output.

 private:
  Status on_credit(const Frame& frame) {
    DRUPE_ASSIGN(const std::uint32_t bytes, decode_credit(frame.payload));
    const auto i = static_cast<std::size_t>(frame.channel);
    if (taken_[i] + bytes - main_->received_[i] > kMaxCredit)
      return fail(ErrorCode::kIntegrity, "More credit was granted than the protocol allows");
    taken_[i] += bytes;
    main_->grant(frame.channel);
    return {};
  }

  CreditReceiver stdin_;
};

MainCommand::MainCommand(ExecOptions options, std::optional<LogWriter> log, Callbacks callbacks)
    : options_(std::move(options)), log_(std::move(log)), callbacks_(std::move(callbacks)) {}

MainCommand::~MainCommand() {
  for (Attachment* attachment : attachments_) attachment->main_ = nullptr;
}

Status MainCommand::start(GuestLink& link) {
  if (state_ != State::kWaiting)
    return fail(ErrorCode::kInvalidState, "The main command has been started already");
  OpenRequest request;
  request.kind = OpenKind::kExec;
  request.exec = options_;
  request.exec.exec_id = "main";
  request.exec.keep_on_reset = true;
  return open(link, request);
}

Status MainCommand::reattach(GuestLink& link) {
  OpenRequest request;
  request.kind = OpenKind::kAttach;
  request.exec.exec_id = "main";
  request.exec.stdin_open = options_.stdin_open;
  return open(link, request);
}

Status MainCommand::open(GuestLink& link, const OpenRequest& request) {
  DRUPE_ASSIGN(id_, link.open(request.encode(), *this));
  link_ = &link;
  state_ = State::kRunning;
  received_ = {};
  allowed_.fill(kInitialCredit);
  for (Attachment* attachment : attachments_) attachment->taken_.fill(kInitialCredit);
  flush_stdin();
  return {};
}

template <class F>
void MainCommand::for_each_attachment(const F& call) {
  // A copy: an attachment may leave while it is called.
  for (Attachment* attachment : std::vector<Attachment*>(attachments_))
    if (std::find(attachments_.begin(), attachments_.end(), attachment) != attachments_.end())
      call(*attachment);
}

void MainCommand::on_guest_frame(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kOpened:
      opened_ = std::string(as_text(frame.payload));
      return for_each_attachment(
          [&](const Attachment& a) { a.client_.send(FrameType::kOpened, Channel::kStdin, *opened_); });
    case FrameType::kData:
      return on_output(frame);
    case FrameType::kEof:
      eof_.at(static_cast<std::size_t>(frame.channel)) = true;
      return for_each_attachment(
          [&](const Attachment& a) { a.client_.send(FrameType::kEof, frame.channel, {}); });
    case FrameType::kCredit:
      return flush_stdin();
    case FrameType::kExit: {
      auto facts = ExitFacts::decode(frame.payload);
      ExitFacts broken;
      if (!facts) broken.error = std::move(facts).error();
      return on_exit(facts ? *facts : broken);
    }
    default: {
      ExitFacts lost;
      lost.error =
          Error{ErrorCode::kGuest,
                "The guest gave the main command up: " + std::string(as_text(frame.payload).substr(0, 1024)),
                {},
                0};
      return on_exit(lost);
    }
  }
}

void MainCommand::on_output(const Frame& frame) {
  if (log_) log_->append(frame.channel, as_text(frame.payload));
  received_.at(static_cast<std::size_t>(frame.channel)) += frame.payload.size();
  for_each_attachment(
      [&](const Attachment& a) { a.client_.send(FrameType::kData, frame.channel, as_text(frame.payload)); });
  grant(frame.channel);
}

void MainCommand::grant(Channel channel) {
  if (state_ != State::kRunning || link_ == nullptr) return;
  const auto i = static_cast<std::size_t>(channel);
  // One window beyond what came: an attachment that comes now takes exactly that much.
  std::uint64_t limit = received_[i] + kInitialCredit;
  for (const Attachment* attachment : attachments_) limit = std::min(limit, attachment->taken_[i]);
  if (limit < allowed_[i] + kInitialCredit / 2) return;
  const auto more = static_cast<std::uint32_t>(limit - allowed_[i]);
  // Bounded by one window, so the link takes it.
  if (link_->grant(id_, channel, more)) allowed_[i] = limit;
}

void MainCommand::on_exit(const ExitFacts& facts) {
  state_ = State::kEnded;
  facts_ = facts;
  link_ = nullptr;
  // First: a client that has its answer may at once do what depends on the end having been recorded.
  if (callbacks_.on_ended) callbacks_.on_ended(facts);
  const std::string encoded = facts.encode();
  for (Attachment* attachment : std::exchange(attachments_, {})) {
    attachment->main_ = nullptr;
    attachment->client_.exit(encoded);
  }
  stdin_owner_ = nullptr;
}

void MainCommand::guest_gone(const Error& error) {
  link_ = nullptr;
  for (Attachment* attachment : std::exchange(attachments_, {})) {
    attachment->main_ = nullptr;
    attachment->client_.reset(error);
  }
  stdin_owner_ = nullptr;
}

Result<std::unique_ptr<ClientSideStream>> MainCommand::attach(const ClientStreamRef& client,
                                                              bool wants_stdin) {
  auto attachment = std::make_unique<Attachment>(this, client);
  if (state_ == State::kEnded) {
    attachment->main_ = nullptr;
    client.exit(facts_->encode());
    return attachment;
  }
  if (wants_stdin && options_.stdin_open && stdin_owner_ == nullptr) stdin_owner_ = attachment.get();
  attachments_.push_back(attachment.get());
  if (opened_) client.send(FrameType::kOpened, Channel::kStdin, *opened_);
  for (const Channel channel : {Channel::kStdout, Channel::kStderr})
    if (eof_.at(static_cast<std::size_t>(channel))) client.send(FrameType::kEof, channel, {});
  if (state_ == State::kWaiting && callbacks_.on_wanted) callbacks_.on_wanted();
  return attachment;
}

Status MainCommand::take_stdin(std::string_view bytes) {
  pending_stdin_.append(bytes);
  flush_stdin();
  return {};
}

void MainCommand::flush_stdin() {
  if (state_ != State::kRunning || link_ == nullptr) return;
  std::size_t sent = 0;
  while (sent < pending_stdin_.size()) {
    const std::size_t part = std::min({pending_stdin_.size() - sent, link_->may_send(id_), kMaxPayload});
    if (part == 0 || !link_->send_data(id_, std::string_view(pending_stdin_).substr(sent, part))) break;
    sent += part;
  }
  pending_stdin_.erase(0, sent);
  if (sent != 0 && stdin_owner_ != nullptr) stdin_owner_->stdin_consumed(sent);
  if (!pending_stdin_.empty() || !eof_pending_) return;
  eof_pending_ = false;
  link_->send(FrameType::kEof, id_, {});
}

void MainCommand::detach(Attachment* attachment) {
  attachment->main_ = nullptr;
  std::erase(attachments_, attachment);
  if (stdin_owner_ == attachment) stdin_owner_ = nullptr;
  // The slowest may have been this one.
  for (const Channel channel : {Channel::kStdout, Channel::kStderr}) grant(channel);
}

}  // namespace drupe
