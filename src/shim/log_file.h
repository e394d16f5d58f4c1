// The output log of a sandbox's main command: two files of 5 MiB in its directory, the older one overwritten,
// so at most 10 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace drupe {

/// Longest record; append() splits what is longer.
inline constexpr std::size_t kMaxLogRecord = 65536;
inline constexpr std::uint64_t kLogFileSize = 5 * 1024 * 1024;

/// Each file: u64 offset of its first record in the stream of all records ever written, then records:
/// u64 realtime_ns, u8 Channel, u8[3] zero, u32 length, bytes.
class LogWriter {
 public:
  /// Continues the log of an earlier life of the sandbox. `sandbox_dir` is borrowed.
  static Result<LogWriter> open(int sandbox_dir);
  /// A failed write (full disk) is remembered and reported once through the shim's log; it never stops the
  /// sandbox.
  void append(Channel channel, std::string_view bytes);
  /// Bytes that could not be written.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  explicit LogWriter(int dir) : dir_(dir) {}
  void write_record(Channel channel, std::string_view bytes);
  Status start_file(std::uint64_t stream_offset);
  Status rotate();
  void note_loss(const Error& error, std::size_t bytes);

  int dir_ = -1;
  UniqueFd file_;
  std::uint64_t base_ = 0;  ///< Stream offset of the current file's first record.
  std::uint64_t size_ = 0;  ///< Of the current file, its head included.
  std::uint64_t lost_ = 0;
};

/// Reads all records from `offset` on, oldest first. `on_record` returns false to stop. A torn last record is
/// left for the next call. `offset` in and out: continue from there (for `logs -f`); it counts bytes of the
/// record stream since its beginning and survives rotation (what was overwritten meanwhile is skipped). A log
/// that was never written is empty.
Status read_log(int sandbox_dir, std::uint64_t& offset,
                const std::function<bool(std::int64_t time_ns, Channel, std::string_view)>& on_record);

}  // namespace drupe
