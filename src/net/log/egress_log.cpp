#include "net/log/egress_log.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace drupe::net {
namespace {

void shorten(std::string& text) {
  if (text.size() <= EgressLog::kLongestText) return;
  text.resize(EgressLog::kLongestText);
  text += "...";
}

bool same_event(const LogEntry& a, const LogEntry& b) {
  return a.kind == b.kind && a.allowed == b.allowed && a.name == b.name && a.detail == b.detail &&
         a.address == b.address && a.port == b.port && a.rule == b.rule;
}

std::string_view kind_text(LogKind kind) {
  switch (kind) {
    case LogKind::kName:
      return "name";
    case LogKind::kAnswer:
      return "answer";
    case LogKind::kConnection:
      return "connection";
    case LogKind::kRequest:
      break;
  }
  return "request";
}

/// RFC 3339 in UTC with milliseconds.
std::string time_text(std::int64_t ms) {
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char day[32];
  const std::size_t size = std::strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%03dZ", static_cast<int>(ms % 1000));
  return std::string(day, size) + fraction;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escaped;
    }
  }
  return out + "\"";
}

std::string plain_text(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

std::string address_text(const LogEntry& entry) {
  std::string text = entry.address->to_string();
  if (entry.port == 0) return text;
  if (!entry.address->is_v4()) text = "[" + text + "]";
  return text + ":" + std::to_string(entry.port);
}

}  // namespace

std::string to_json_line(const LogEntry& entry) {
  std::string out =
      "{\"seq\":" + std::to_string(entry.sequence) + ",\"time\":" + json_text(time_text(entry.first_ms));
  out += ",\"kind\":" + json_text(kind_text(entry.kind));
  out += entry.allowed ? ",\"allowed\":true" : ",\"allowed\":false";
  if (!entry.name.empty()) out += ",\"name\":" + json_text(entry.name);
  if (!entry.detail.empty()) out += ",\"detail\":" + json_text(entry.detail);
  if (entry.address) out += ",\"address\":" + json_text(entry.address->to_string());
  if (entry.port != 0) out += ",\"port\":" + std::to_string(entry.port);
  out += ",\"rule\":" + json_text(entry.rule) + ",\"count\":" + std::to_string(entry.count);
  return out + ",\"last\":" + json_text(time_text(entry.last_ms)) + "}";
}

std::string to_text_line(const LogEntry& entry) {
  std::string out = time_text(entry.first_ms) + (entry.allowed ? " allowed " : " refused ");
  out += kind_text(entry.kind);
  if (!entry.name.empty()) out += " " + plain_text(entry.name);
  if (entry.address) out += " " + address_text(entry);
  if (!entry.detail.empty()) out += " " + plain_text(entry.detail);
  out += " (" + plain_text(entry.rule) + ")";
  return entry.count == 1 ? out : out + " x" + std::to_string(entry.count);
}

EgressLog::EgressLog(WallClock wall_clock, std::size_t capacity)
    : wall_clock_(std::move(wall_clock)), capacity_(std::max<std::size_t>(capacity, 1)) {}

void EgressLog::add(LogEntry entry, std::chrono::steady_clock::time_point now) {
  for (std::string* text : {&entry.name, &entry.detail, &entry.rule}) shorten(*text);
  ++(entry.allowed ? counters_.allowed : counters_.refused);
  const std::int64_t wall = wall_clock_();
  const std::size_t depth = std::min(kMergeDepth, ring_.size());
  for (auto slot = ring_.rbegin(); slot != ring_.rbegin() + static_cast<std::ptrdiff_t>(depth); ++slot) {
    if (now - slot->last > kMergeWindow || !same_event(slot->entry, entry)) continue;
    ++slot->entry.count;
    slot->entry.last_ms = wall;
    slot->last = now;
    return note(slot->entry);
  }
  entry.sequence = next_++;
  entry.count = 1;
  entry.first_ms = entry.last_ms = wall;
  if (ring_.size() == capacity_) {
    ring_.pop_front();
    ++counters_.dropped;
  }
  ring_.push_back({std::move(entry), now});
  note(ring_.back().entry);
}

// Of time they tell the wall clock's only: none is merged with what comes now.
void EgressLog::restore(std::vector<LogEntry> entries) {
  const std::size_t skip = entries.size() - std::min(entries.size(), capacity_);
  for (std::size_t i = skip; i < entries.size(); ++i) {
    for (std::string* text : {&entries[i].name, &entries[i].detail, &entries[i].rule}) shorten(*text);
    next_ = entries[i].sequence + 1;
    ring_.push_back({std::move(entries[i]), std::chrono::steady_clock::time_point()});
    note(ring_.back().entry);
  }
}

std::vector<LogEntry> EgressLog::read(std::uint64_t after, std::size_t most) const {
  std::vector<LogEntry> out;
  if (ring_.empty()) return out;
  const std::uint64_t first = ring_.front().entry.sequence;
  // Sequences have no gaps, so a place in the ring follows from them.
  const std::uint64_t skip = after >= first ? after - first + 1 : 0;
  for (std::uint64_t i = skip; i < ring_.size() && out.size() < most; ++i)
    out.push_back(ring_[static_cast<std::size_t>(i)].entry);
  return out;
}

}  // namespace drupe::net
