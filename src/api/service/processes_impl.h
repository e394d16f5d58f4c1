// Inside of Processes, for its two files.
#pragma once

#include "api/service/processes.h"

namespace drupe::api {

/// Sequence numbers that are written down as used before they are, so that none is given twice after a
/// restart.
inline constexpr std::int64_t kReservedAtOnce = 1'000'000;

struct Processes::Link {
  std::unique_ptr<ShimClient> client;
};

struct Processes::Process {
  // Under mutex_.
  ProcessRow row;
  bool opened = false;  ///< It has begun, or has failed to.
  bool terminating = false;
  std::optional<Error> problem;
  std::deque<OutputFrame> frames;
  std::size_t bytes = 0;
  std::uint64_t newest_seq = 0;
  std::string given_input;    ///< Not yet seen by the loop's thread.
  std::size_t unwritten = 0;  ///< Of what it has seen.
  std::uint64_t input_seq = 0;
  bool eof_sent = false;

  // The loop's thread only.
  Link* link = nullptr;
  ShimClient::StreamId stream = 0;
  std::string pending_input;
};

}  // namespace drupe::api
