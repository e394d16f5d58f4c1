// Managed processes: what happens on the thread that has their streams.
#include "api/service/ids.h"
#include "api/service/processes_impl.h"
#include "base/log.h"

namespace drupe::api {

void Processes::open(const Shared& process, Link& link, const OpenRequest& request) {
  StreamHandler handler;
  const std::weak_ptr<Process> weak = process;
  handler.on_opened = [this, weak](const OpenedReply& opened) {
    const auto self = weak.lock();
    if (!self) return;
    const std::scoped_lock lock(mutex_);
    self->opened = true;
    if (opened.pid != 0) self->row.pid = opened.pid;
    changed_.notify_all();
  };
  handler.on_data = [this, weak](Channel channel, std::string_view bytes) {
    if (const auto self = weak.lock()) on_data(*self, channel, bytes);
  };
  handler.on_exit = [this, weak](const ExitFacts& facts) {
    if (const auto self = weak.lock()) on_end(*self, &facts, nullptr);
  };
  handler.on_error = [this, weak](const Error& error) {
    if (const auto self = weak.lock()) on_end(*self, nullptr, &error);
  };
  handler.on_writable = [this, weak] {
    if (const auto self = weak.lock()) feed(self);
  };
  auto stream = link.client->open(request, std::move(handler));
  if (!stream) return on_end(*process, nullptr, &stream.error());
  process->stream = *stream;
  process->link = &link;
}

void Processes::feed(const Shared& process) {
  if (process->link == nullptr) return;
  std::string& pending = process->pending_input;
  {
    const std::scoped_lock lock(mutex_);
    pending.append(std::exchange(process->given_input, {}));
  }
  pending.erase(0, process->link->client->write(process->stream, pending));
  const std::scoped_lock lock(mutex_);
  process->unwritten = pending.size();
  if (pending.empty() && process->row.stdin_closed && !process->eof_sent) {
    process->eof_sent = true;
    process->link->client->close_stdin(process->stream);
  }
}

void Processes::on_data(Process& process, Channel channel, std::string_view bytes) {
  const std::scoped_lock lock(mutex_);
  const auto seq = static_cast<std::int64_t>(++process.newest_seq);
  if (seq > process.row.seq_reserved) {
    process.row.seq_reserved = seq + kReservedAtOnce;
    if (auto saved = store_.save_process(process.row); !saved) log(LogLevel::kError, saved.error().message);
  }
  process.frames.push_back({process.newest_seq, channel, std::string(bytes)});
  process.bytes += bytes.size();
  while (process.bytes > kKeptOutput && process.frames.size() > 1) {
    process.bytes -= process.frames.front().bytes.size();
    process.frames.pop_front();
  }
  changed_.notify_all();
}

void Processes::on_end(Process& process, const ExitFacts* facts, const Error* error) {
  const std::scoped_lock lock(mutex_);
  process.link = nullptr;
  // A connection that is gone says nothing about the process: it may be paused with its sandbox.
  const bool unknown = error != nullptr && error->code != ErrorCode::kNotFound && process.opened;
  if (unknown || process.row.finished_ns) return;
  process.row.finished_ns = now_ns();
  if (facts != nullptr && !facts->error) {
    if (facts->signal != 0)
      process.row.signal = facts->signal;
    else
      process.row.exit_code = facts->exit_code;
  } else {
    process.row.failed = true;
    process.problem = facts != nullptr ? *facts->error : *error;
  }
  process.opened = true;
  if (auto saved = store_.save_process(process.row); !saved) log(LogLevel::kError, saved.error().message);
  changed_.notify_all();
}

Status Processes::link(const std::string& sandbox, int directory) {
  if (links_.contains(sandbox)) return {};
  auto fresh = std::make_unique<Link>();
  DRUPE_ASSIGN(fresh->client, ShimClient::connect(thread_->loop(), directory));
  fresh->client->on_closed([this, sandbox] {
    // Its own callback: it goes when that has returned.
    thread_->loop().defer([this, sandbox] { links_.erase(sandbox); });
  });
  Link& link = *fresh;
  links_[sandbox] = std::move(fresh);
  DRUPE_ASSIGN(const auto processes, known(sandbox));
  for (const Shared& process : processes) {
    {
      const std::scoped_lock lock(mutex_);
      if (process->row.finished_ns) continue;
      process->opened = true;
      process->eof_sent = process->row.stdin_closed;
    }
    OpenRequest request;
    request.kind = OpenKind::kAttach;
    request.exec.exec_id = process->row.id;
    request.exec.stdin_open = !process->row.stdin_closed;
    open(process, link, request);
  }
  return {};
}

}  // namespace drupe::api
