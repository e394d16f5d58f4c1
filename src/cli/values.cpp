#include "cli/values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include <fnmatch.h>
#include <string.h>

namespace drupe::cli {
namespace {

struct Measure {
  double number = 0;
  std::string unit;  ///< Lower case.
};

/// A non-negative decimal number and what follows it.
Result<Measure> parse_measure(std::string_view text, std::string_view what) {
  Measure measure;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, measure.number, std::chars_format::fixed);
  if (error != std::errc{} || std::signbit(measure.number) || !std::isfinite(measure.number))
    return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is not a " + std::string(what));
  for (const char* at = rest; at != end; ++at)
    measure.unit += *at >= 'A' && *at <= 'Z' ? static_cast<char>(*at - 'A' + 'a') : *at;
  return measure;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  DRUPE_ASSIGN(const Measure measure, parse_measure(text, "size; write for example 512m or 8g"));
  std::string_view unit = measure.unit;
  if (unit.ends_with("ib")) {
    unit.remove_suffix(2);
  } else if (unit.ends_with('b')) {
    unit.remove_suffix(1);
  }
  int shift = 0;
  if (unit == "k") {
    shift = 10;
  } else if (unit == "m") {
    shift = 20;
  } else if (unit == "g") {
    shift = 30;
  } else if (unit == "t") {
    shift = 40;
  } else if (!unit.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "'" + printable(text) + "' has an unknown unit; use k, m, g or t");
  }
  const double bytes = std::ldexp(measure.number, shift);
  if (bytes > std::ldexp(1.0, 60))
    return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is too large");
  return static_cast<std::uint64_t>(bytes);
}

Result<std::uint64_t> parse_memory_mib(std::string_view text) {
  DRUPE_ASSIGN(const std::uint64_t bytes, parse_size(text));
  constexpr std::uint64_t kMib = 1 << 20;
  if (bytes < kMib && text.find_first_not_of("0123456789") == std::string_view::npos) return bytes;
  return (bytes + kMib - 1) / kMib;
}

namespace {

/// One number with its unit, in milliseconds.
Result<double> duration_part(std::string_view text) {
  DRUPE_ASSIGN(const Measure measure,
               parse_measure(text, "duration; write for example 30, 500ms, 5m or 1h30m"));
  double factor = 0;
  if (measure.unit.empty() || measure.unit == "s") {
    factor = 1e3;
  } else if (measure.unit == "ms") {
    factor = 1;
  } else if (measure.unit == "m") {
    factor = 60e3;
  } else if (measure.unit == "h") {
    factor = 3600e3;
  } else if (measure.unit == "d") {
    factor = 86400e3;
  } else {
    return fail(ErrorCode::kInvalidArgument,
                "'" + printable(text) + "' has an unknown unit; use ms, s, m, h or d");
  }
  return measure.number * factor;
}

/// Where the part at the start of `text` ends: before the first digit after a unit.
std::size_t end_of_part(std::string_view text) {
  const auto unit = text.find_first_not_of("0123456789.");
  if (unit == std::string_view::npos || unit == 0) return text.size();
  return std::min(text.find_first_of("0123456789", unit), text.size());
}

}  // namespace

Result<std::uint64_t> parse_duration_ms(std::string_view text) {
  double sum = 0;
  std::string_view rest = text;
  do {
    const std::size_t end = end_of_part(rest);
    DRUPE_ASSIGN(const double part, duration_part(end == text.size() ? text : rest.substr(0, end)));
    sum += part;
    rest.remove_prefix(end);
  } while (!rest.empty());
  const double milliseconds = std::ceil(sum);
  if (milliseconds < 1)
    return fail(ErrorCode::kInvalidArgument, "The duration must be more than zero",
                "Leave the flag out for no limit");
  if (milliseconds > 365 * 86400e3)
    return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is longer than 365 days");
  return static_cast<std::uint64_t>(milliseconds);
}

Result<int> parse_signal(std::string_view text) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && rest == text.data() + text.size()) {
    if (number >= 1 && number <= 64) return number;
  } else {
    std::string upper;
    for (const char c : text) upper += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    std::string_view name = upper;
    if (name.starts_with("SIG")) name.remove_prefix(3);
    for (int candidate = 1; candidate < 32; ++candidate) {
      const char* abbreviation = ::sigabbrev_np(candidate);
      if (abbreviation != nullptr && name == abbreviation) return candidate;
    }
  }
  return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is not a signal",
              "Use a name such as TERM or a number from 1 to 64");
}

Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size() || number < low || number > high)
    return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is not a number from " +
                                                 std::to_string(low) + " to " + std::to_string(high));
  return number;
}

Result<double> parse_cpus(std::string_view text) {
  DRUPE_ASSIGN(const Measure measure, parse_measure(text, "number of processors"));
  if (!measure.unit.empty())
    return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is not a number of processors");
  return measure.number;
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  const bool fraction = unit > 0 && value < 100;
  std::snprintf(text.data(), text.size(), fraction ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
  return text.data();
}

std::string format_age(std::int64_t nanoseconds) {
  struct Unit {
    std::int64_t seconds;
    const char* name;
  };
  constexpr std::array kUnits{Unit{86400, "day"}, Unit{3600, "hour"}, Unit{60, "minute"}, Unit{1, "second"}};
  const std::int64_t seconds = std::max<std::int64_t>(nanoseconds, 0) / 1'000'000'000;
  for (const Unit& unit : kUnits) {
    const std::int64_t count = seconds / unit.seconds;
    // Two of the smaller unit say more than one of the larger.
    if (count >= 2 || (count == 1 && unit.seconds == 1))
      return std::to_string(count) + " " + unit.name + (count == 1 ? "" : "s");
  }
  return "less than a second";
}

std::string format_time(std::int64_t realtime_ns) {
  if (realtime_ns <= 0) return {};
  const std::time_t seconds = realtime_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + size, text.size() - size, ".%09lldZ",
                static_cast<long long>(realtime_ns % 1'000'000'000));
  return text.data();
}

std::string signal_name(int number) {
  const char* name = number > 0 && number < 32 ? ::sigabbrev_np(number) : nullptr;
  return name != nullptr ? name : std::to_string(number);
}

bool glob_match(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

namespace {

/// Length of the well-formed UTF-8 sequence that `text` begins with; 0 when it begins with none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;   // Shorter forms exist below.
    if (first == 0xED) high = 0x9F;  // Surrogates.
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;  // Beyond U+10FFFF.
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    // C1 control characters (U+0080..U+009F) steer some terminals as well.
    const bool control = length == 0 || first < 0x20 || first == 0x7F ||
                         (length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
    const std::size_t taken = length == 0 ? 1 : length;
    if (control) {
      for (std::size_t i = 0; i < taken; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        out += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
      }
    } else {
      out += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8U | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += j <= count ? kDigits[group >> (18U - 6U * j) & 63U] : '=';
  }
  return out;
}

}  // namespace drupe::cli
