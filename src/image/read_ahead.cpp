#include "image/read_ahead.h"

#include <pthread.h>

namespace drupe {
namespace {

constexpr std::size_t kChunk = 512 * 1024;
constexpr std::size_t kChunks = 4;

}  // namespace

ReadAhead::ReadAhead(std::unique_ptr<ByteSource> source) : source_(std::move(source)), empty_(kChunks) {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "drupe-read");
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<ReadAhead::Chunk> ReadAhead::next(Chunk used) {
  std::unique_lock lock(mutex_);
  if (used.capacity() > 0) {
    empty_.push_back(std::move(used));
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return !full_.empty() || ended_; });
  if (full_.empty()) {
    if (error_) return std::unexpected(*error_);
    return Chunk();
  }
  Chunk chunk = std::move(full_.front());
  full_.pop_front();
  return chunk;
}

void ReadAhead::run() {
  while (true) {
    Chunk chunk;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !empty_.empty() || stop_; });
      if (stop_) return;
      chunk = std::move(empty_.back());
      empty_.pop_back();
    }
    chunk.resize(kChunk);
    std::size_t fill = 0;
    std::optional<Error> error;
    bool ended = false;
    while (fill < chunk.size() && !ended && !error) {
      auto got = source_->read(std::span(chunk).subspan(fill));
      if (!got) {
        error = std::move(got).error();
      } else {
        fill += *got;
        ended = *got == 0;
      }
    }
    chunk.resize(fill);
    const std::lock_guard lock(mutex_);
    if (fill > 0) full_.push_back(std::move(chunk));
    if (ended || error) {
      error_ = std::move(error);
      ended_ = true;
    }
    changed_.notify_all();
    if (ended_) return;
  }
}

}  // namespace drupe
