// How a long operation tells its caller what it is doing, and learns that it should stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace drupe {

struct Progress {
  std::string what;         ///< "Downloading layer 2 of 5", the same text for all reports of one item.
  std::uint64_t done = 0;   ///< Bytes.
  std::uint64_t total = 0;  ///< Bytes; 0 when it is not known.
};

/// Called about ten times a second for an item, and once at its end; by one thread at a time, not always the
/// same. May be empty.
using OnProgress = std::function<void(const Progress&)>;

/// Set to true by the caller (a signal handler may) to stop the operation with kCancelled. May be null.
using CancelFlag = const std::atomic<bool>*;

[[nodiscard]] inline bool cancelled(CancelFlag flag) {
  return flag != nullptr && flag->load();
}

}  // namespace drupe
