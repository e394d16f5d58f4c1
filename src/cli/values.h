// What people type and read: sizes, durations, signals, numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe::cli {

/// "512m", "8g", "1.5GiB", "1048576" (bytes). Units are powers of 1024, as Docker's are.
Result<std::uint64_t> parse_size(std::string_view text);
/// Memory in MiB, rounded up: a size, or a bare number below 1048576, which cannot be meant as bytes and is
/// taken as MiB.
Result<std::uint64_t> parse_memory_mib(std::string_view text);
/// "10" and "10s" are seconds; also ms, m, h, d and fractions. Milliseconds; more than zero, at most 365
/// days.
Result<std::uint64_t> parse_duration_ms(std::string_view text);
/// "TERM", "SIGTERM" or "15": 1..64.
Result<int> parse_signal(std::string_view text);
/// A plain decimal number from `low` to `high`.
Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t low, std::uint64_t high);
/// A number of processors; the engine knows the range.
Result<double> parse_cpus(std::string_view text);

/// "1.5 GiB", "512 MiB", "17 B".
[[nodiscard]] std::string format_size(std::uint64_t bytes);
/// "3 seconds", "5 minutes", "2 hours", "4 days".
[[nodiscard]] std::string format_age(std::int64_t nanoseconds);
/// RFC 3339 in UTC with nanoseconds; empty for 0.
[[nodiscard]] std::string format_time(std::int64_t realtime_ns);
/// Name without "SIG"; the number where it has none.
[[nodiscard]] std::string signal_name(int number);
/// True when `text` matches a glob of *, ?, [...].
[[nodiscard]] bool glob_match(const std::string& pattern, const std::string& text);
/// `text` without what could steer a terminal: control characters and bytes that are not UTF-8 become \xNN.
[[nodiscard]] std::string printable(std::string_view text);
/// Whether `text` is well-formed UTF-8.
[[nodiscard]] bool is_utf8(std::string_view text);
[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace drupe::cli
