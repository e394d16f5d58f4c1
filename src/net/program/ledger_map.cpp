#include "net/program/ledger_map.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace drupe::net {
namespace {

// Sequence numbers beyond it are made up; the next ones must not overflow.
constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 53;

// A process that is killed has written in this order.
template <class T>
void store(T& place, T value) {
  std::atomic_ref<T>(place).store(value, std::memory_order_release);
}

PacketAddress address_of(const std::array<std::uint8_t, 16>& bytes, bool v6) {
  return v6 ? PacketAddress::v6_at(bytes.data()) : PacketAddress::v4_at(bytes.data());
}

std::string body_of(const LogEntry& entry) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(entry.kind)).flag(entry.allowed).flag(entry.address.has_value());
  const IpAddress address = entry.address.value_or(IpAddress());
  for (const std::uint8_t byte : address.bytes()) writer.number(byte);
  writer.number(entry.port).number(entry.first_ms);
  // A place has room for the longest name and rule; what is longer loses its end.
  std::size_t left = LedgerEntry::kText - writer.bytes().size() - 3 * sizeof(std::uint32_t);
  for (const std::string* text : {&entry.name, &entry.detail, &entry.rule}) {
    const std::size_t size = std::min(left, text->size());
    writer.text(std::string_view(*text).substr(0, size));
    left -= size;
  }
  return writer.take();
}

std::optional<LogEntry> entry_of(const LedgerEntry& raw) {
  if (raw.sequence == 0 || raw.sequence > kMaxSequence || raw.size > raw.body.size()) return std::nullopt;
  ByteReader reader(ByteView(raw.body).first(raw.size));
  LogEntry entry;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(LogKind::kRequest)) return std::nullopt;
  entry.kind = static_cast<LogKind>(kind);
  entry.allowed = reader.flag();
  const bool has_address = reader.flag();
  std::array<std::uint8_t, 16> bytes{};
  for (std::uint8_t& byte : bytes) byte = reader.number<std::uint8_t>();
  if (has_address) entry.address = IpAddress::from_bytes(bytes);
  entry.port = reader.number<std::uint16_t>();
  entry.first_ms = reader.number<std::int64_t>();
  entry.name = reader.text();
  entry.detail = reader.text();
  entry.rule = reader.text();
  if (!reader.done()) return std::nullopt;
  entry.sequence = raw.sequence;
  entry.last_ms = raw.last_ms;
  entry.count = raw.count;
  return entry;
}

}  // namespace

void LedgerMap::Unmap::operator()(Ledger* ledger) const {
  ::munmap(ledger, sizeof *ledger);
}

Result<LedgerMap> LedgerMap::open(const UniqueFd& fd) {
  struct stat info{};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &info) != 0 ||
      info.st_size != static_cast<off_t>(sizeof(Ledger)))
    return fail(ErrorCode::kIntegrity, "The network's ledger has another form");
  void* memory = ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return fail_sys("Mapping the network's ledger failed", errno);
  LedgerMap map;
  map.ledger_.reset(static_cast<Ledger*>(memory));
  if (map.ledger_->magic != kLedgerMagic || map.ledger_->version != kLedgerVersion)
    return fail(ErrorCode::kUnsupported, "The network's ledger is of another version");
  return map;
}

LedgerRemains LedgerMap::take() {
  LedgerRemains remains;
  if (!ledger_) return remains;
  for (LedgerFlow& place : ledger_->flows) {
    const LedgerFlow flow = place;
    if (flow.family == 0) continue;
    store(place.family, std::uint8_t{0});
    if (flow.family != 4 && flow.family != 6) continue;
    const bool v6 = flow.family == 6;
    remains.flows.push_back(
        {address_of(flow.guest, v6), address_of(flow.remote, v6), flow.guest_port, flow.remote_port});
  }
  for (LedgerEntry& place : ledger_->entries) {
    if (place.sequence == 0) continue;
    const LedgerEntry copy = place;
    if (auto entry = entry_of(copy)) remains.entries.push_back(*std::move(entry));
    store(place.sequence, std::uint64_t{0});
  }
  auto& entries = remains.entries;
  std::ranges::sort(entries, {}, &LogEntry::sequence);
  for (std::size_t i = entries.size(); i > 1; --i) {
    if (entries[i - 2].sequence + 1 == entries[i - 1].sequence) continue;
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(i - 1));
    break;
  }
  return remains;
}

void LedgerMap::set_used(std::uint64_t bytes) {
  if (ledger_) store(ledger_->used_bytes, bytes);
}

void LedgerMap::set_flow(FlowId flow, const FlowKey* key) {
  if (!ledger_ || flow.index >= ledger_->flows.size()) return;
  LedgerFlow& place = ledger_->flows[flow.index];
  store(place.family, std::uint8_t{0});
  if (key == nullptr) return;
  place.guest_port = key->guest_port;
  place.remote_port = key->remote_port;
  place.guest = key->guest.bytes;
  place.remote = key->remote.bytes;
  store(place.family, key->guest.v6 ? std::uint8_t{6} : std::uint8_t{4});
}

void LedgerMap::set_entry(const LogEntry& entry) {
  if (!ledger_) return;
  LedgerEntry& place = ledger_->entries[entry.sequence % ledger_->entries.size()];
  if (place.sequence != entry.sequence) {
    const std::string body = body_of(entry);
    store(place.sequence, std::uint64_t{0});
    std::ranges::copy(as_bytes(body), place.body.begin());
    place.size = static_cast<std::uint16_t>(body.size());
  }
  place.count = entry.count;
  place.last_ms = entry.last_ms;
  store(place.sequence, entry.sequence);
}

}  // namespace drupe::net
