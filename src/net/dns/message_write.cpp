// Writing DNS messages, with compression of owner names and of the targets of aliases.
#include <map>

#include "net/dns/message.h"

namespace drupe::net::dns {
namespace {

class Writer {
 public:
  void number16(std::size_t value) {
    out_ += static_cast<char>(value >> 8 & 0xff);
    out_ += static_cast<char>(value & 0xff);
  }
  void number32(std::uint32_t value) {
    number16(value >> 16);
    number16(value & 0xffff);
  }

  void name(const Name& name) {
    const std::string& wire = name.wire();
    for (std::size_t at = 0; at < wire.size();) {
      const auto size = static_cast<std::size_t>(static_cast<unsigned char>(wire[at]));
      if (size == 0) break;
      // The case of letters is part of the key, so that each record keeps its spelling.
      const auto known = known_.find(wire.substr(at));
      if (known != known_.end()) {
        number16(0xc000 | known->second);
        return;
      }
      constexpr std::size_t kFarthest = 0x3fff;
      if (out_.size() <= kFarthest) known_.emplace(wire.substr(at), out_.size());
      out_.append(wire, at, size + 1);
      at += size + 1;
    }
    out_ += '\0';
  }

  void record(const Record& record) {
    name(record.name);
    number16(record.type);
    number16(record.klass);
    number32(record.ttl);
    const std::size_t length_at = out_.size();
    number16(0);
    const auto target = record.type == kCname ? name_in_data(record.data) : std::nullopt;
    if (target)
      name(*target);
    else
      out_ += record.data;
    const std::size_t length = out_.size() - length_at - 2;
    out_[length_at] = static_cast<char>(length >> 8);
    out_[length_at + 1] = static_cast<char>(length & 0xff);
  }

  void edns(const Edns& edns) {
    out_ += '\0';
    number16(kOpt);
    number16(edns.udp_size);
    number32(static_cast<std::uint32_t>(edns.extended_rcode) << 24 | static_cast<std::uint32_t>(edns.version)
                                                                         << 16);
    number16(0);
  }

  [[nodiscard]] std::size_t size() const { return out_.size(); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  std::map<std::string, std::size_t> known_;  ///< Uncompressed name -> its offset.
};

std::size_t flags_of(const Message& message) {
  const auto bit = [](bool set, std::size_t value) { return set ? value : std::size_t{0}; };
  return bit(message.response, 0x8000) | static_cast<std::size_t>(message.opcode & 0xf) << 11 |
         bit(message.authoritative, 0x0400) | bit(message.truncated, 0x0200) |
         bit(message.recursion_desired, 0x0100) | bit(message.recursion_available, 0x0080) |
         bit(message.checking_disabled, 0x0010) | (static_cast<std::size_t>(message.rcode) & 0xf);
}

}  // namespace

std::string write_message(const Message& message, std::size_t limit) {
  Writer out;
  out.number16(message.id);
  out.number16(flags_of(message));
  out.number16(message.questions.size());
  out.number16(message.answers.size());
  out.number16(message.authority.size());
  out.number16(message.edns ? 1 : 0);
  for (const Question& question : message.questions) {
    out.name(question.name);
    out.number16(question.type);
    out.number16(question.klass);
  }
  for (const auto* section : {&message.answers, &message.authority})
    for (const Record& record : *section) out.record(record);
  if (message.edns) {
    Edns edns = *message.edns;
    edns.extended_rcode = static_cast<std::uint8_t>(static_cast<unsigned>(message.rcode) >> 4);
    out.edns(edns);
  }
  if (out.size() <= limit || (message.answers.empty() && message.authority.empty())) return out.take();
  Message cut = message;
  cut.truncated = true;
  cut.answers.clear();
  cut.authority.clear();
  return write_message(cut, limit);
}

}  // namespace drupe::net::dns
