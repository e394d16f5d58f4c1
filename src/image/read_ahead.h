// Reads a source in a thread of its own, so that decompressing and hashing run beside what consumes the
// bytes.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "image/source.h"

namespace drupe {

/// next() belongs to one thread. The destructor stops the reader: it waits for a read() that is under way.
class ReadAhead {
 public:
  explicit ReadAhead(std::unique_ptr<ByteSource> source);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  using Chunk = std::vector<std::uint8_t>;
  /// The next bytes, empty only at the end; `used` is a chunk given before, to be filled again.
  Result<Chunk> next(Chunk used);

 private:
  void run();

  std::unique_ptr<ByteSource> source_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> full_;      // guarded by mutex_
  std::vector<Chunk> empty_;    // guarded by mutex_
  std::optional<Error> error_;  // guarded by mutex_
  bool ended_ = false;          // guarded by mutex_
  bool stop_ = false;           // guarded by mutex_
  std::thread thread_;          // last: it uses the others
};

}  // namespace drupe
