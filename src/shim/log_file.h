// The output log of a sandbox's main command: two files of 5 MiB in its directory, the older one overwritten, so at most 10 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace drupe {

/// Record on disk: u64 realtime_ns, u8 Channel, u8[3] zero, u32 length, bytes.
class LogWriter {
 public:
  static Result<LogWriter> open(int sandbox_dir);
  /// A failed write (full disk) is remembered and reported once through the shim's log; it never stops the sandbox.
  void append(Channel channel, std::string_view bytes);

 private:
  int dir_ = -1;
  UniqueFd file_;
  std::uint64_t size_ = 0;
};

/// Reads all records, oldest first. `on_record` returns false to stop. Torn last records are skipped.
/// `offset` in and out: continue from there (for `logs -f`); it counts bytes of the record stream since its beginning and survives rotation.
Status read_log(int sandbox_dir, std::uint64_t& offset,
                const std::function<bool(std::int64_t time_ns, Channel, std::string_view)>& on_record);

}  // namespace drupe
