#include "net/dns/proxy.h"

#include <algorithm>

#include "net/dns/filter.h"
#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net::dns {
namespace {

constexpr std::uint32_t kLocalTtl = 5;    // seconds; members of a private network come and go
constexpr std::size_t kClassicUdp = 512;  // RFC 1035, 2.3.4
constexpr std::size_t kLargest = 65535;

bool in_local_zone(std::string_view name) {
  return is_in_domain(name, "drupe.internal") || is_in_domain(name, "fc.local");
}

/// Types that are about a message or a zone and no data of a name (RFC 6895, 3.1), but for ANY.
bool is_meta_type(std::uint16_t type) {
  return type == 0 || type == kOpt || (type >= 249 && type < kAny);
}

Message response_to(const Message& query, Rcode rcode) {
  Message message;
  message.id = query.id;
  message.response = true;
  message.opcode = query.opcode;
  message.recursion_desired = query.recursion_desired;
  message.recursion_available = true;
  message.checking_disabled = query.checking_disabled;
  message.rcode = rcode;
  message.questions = query.questions;
  if (query.edns) message.edns = Edns{static_cast<std::uint16_t>(Proxy::kUdpCeiling), 0, 0};
  return message;
}

bool same_question(const Message& a, const Message& b) {
  return a.questions.size() == 1 && b.questions.size() == 1 && a.questions[0].type == b.questions[0].type &&
         a.questions[0].klass == b.questions[0].klass && a.questions[0].name.same_as(b.questions[0].name);
}

}  // namespace

Proxy::Proxy(std::shared_ptr<const Policy> policy, Pins& pins, EgressLog& log, Random random, Options options)
    : policy_(std::move(policy)),
      pins_(pins),
      log_(log),
      random_(std::move(random)),
      options_(std::move(options)) {}

Output Proxy::on_query(std::uint64_t client_id, Transport transport, ByteView bytes, Time now) {
  Output out;
  const auto header = peek_header(bytes);
  if (!header || header->response) return out;
  Client client{client_id, transport, {}};
  auto query = parse_message(bytes);
  if (!query) {
    client.query.id = header->id;
    answer_code(out, client, Rcode::kFormErr);
    return out;
  }
  client.query = *std::move(query);
  if (client.query.opcode != 0) {
    answer_code(out, client, Rcode::kNotImp);
    return out;
  }
  if (client.query.questions.empty() || !client.query.answers.empty() || !client.query.authority.empty()) {
    answer_code(out, client, Rcode::kFormErr);
    return out;
  }
  if (client.query.edns && client.query.edns->version != 0) {
    answer_code(out, client, Rcode::kBadVers);
    return out;
  }
  const std::string name = client.query.questions[0].name.text();
  if (answer_here(out, client, name, now) || is_waiting(client)) return out;
  if (pending_.size() >= kMaxOutstanding) {
    answer_code(out, client, Rcode::kServFail);
    return out;
  }
  const std::uint64_t token = next_token_++;
  Pending pending;
  pending.client = std::move(client);
  pending.id = random_();
  pending.give_up_at = now + kGiveUp;
  forward(out, token, pending, now);
  pending_.emplace(token, std::move(pending));
  return out;
}

bool Proxy::answer_here(Output& out, const Client& client, const std::string& name, Time now) {
  const Question& question = client.query.questions[0];
  if (question.klass != kInternet || is_meta_type(question.type)) {
    note(name, question.type, false, "not a query that is forwarded", now);
    answer_code(out, client, Rcode::kRefused);
    return true;
  }
  if (answer_local(out, client, name)) return true;
  const Decision decision = policy_->decide_name(name);
  note(name, question.type, decision.allowed, decision.rule, now);
  if (!decision.allowed) {
    answer_code(out, client, refusal_of(name));
    return true;
  }
  if (question.type == kAny) {
    answer_code(out, client, Rcode::kNotImp);
    return true;
  }
  if (question.type == kHttps || question.type == kSvcb || (question.type == kAaaa && !policy_->has_ipv6())) {
    answer_code(out, client, Rcode::kNoError);
    return true;
  }
  const auto reverse = reverse_address(name);
  if (reverse && policy_->why_closed(*reverse)) {
    answer_code(out, client, Rcode::kNxDomain);
    return true;
  }
  return false;
}

bool Proxy::answer_local(Output& out, const Client& client, const std::string& name) const {
  const auto normal = normal_name(name);
  if (!normal || !in_local_zone(*normal)) return false;
  const auto found = local_.find(*normal);
  Message message = response_to(client.query, found == local_.end() ? Rcode::kNxDomain : Rcode::kNoError);
  const Question& question = client.query.questions[0];
  if (found != local_.end()) {
    for (const IpAddress& address : found->second) {
      if (question.type != (address.is_v4() ? kA : kAaaa)) continue;
      message.answers.push_back(
          {question.name, question.type, kInternet, kLocalTtl, std::string(as_text(address.wire()))});
    }
  }
  answer(out, client, message);
  return true;
}

Rcode Proxy::refusal_of(const std::string& name) const {
  const auto normal = normal_name(name);
  const bool searched =
      normal && std::ranges::any_of(options_.search_domains, [&](const std::string& domain) {
        return *normal != domain && is_in_domain(*normal, domain);
      });
  return searched ? Rcode::kNxDomain : options_.refusal;
}

bool Proxy::is_waiting(const Client& client) const {
  // A client that repeats itself gets one answer.
  return std::ranges::any_of(pending_, [&](const auto& entry) {
    const Client& other = entry.second.client;
    return other.id == client.id && other.transport == client.transport &&
           other.query.id == client.query.id && same_question(other.query, client.query);
  });
}

void Proxy::forward(Output& out, std::uint64_t token, Pending& pending, Time now) {
  Message message;
  pending.retry_at = now + kRetryAfter;
  message.id = pending.id;
  message.recursion_desired = true;
  message.checking_disabled = pending.client.query.checking_disabled;
  message.questions = pending.client.query.questions;
  if (pending.edns) message.edns = Edns{static_cast<std::uint16_t>(kUdpCeiling), 0, 0};
  out.forwards.push_back({token, pending.transport, pending.attempt, write_message(message, kLargest)});
}

Output Proxy::on_upstream(std::uint64_t token, Transport transport, ByteView bytes, Time now) {
  Output out;
  const auto found = pending_.find(token);
  if (found == pending_.end() || found->second.transport != transport) return out;
  Pending& pending = found->second;
  const auto header = peek_header(bytes);
  if (!header || !header->response || header->id != pending.id) return out;
  const auto message = parse_message(bytes);
  if (!message) {
    // Over UDP the right answer may still come; a TCP connection has no second one.
    if (transport == Transport::kTcp) return on_upstream_failed(token, now);
    return out;
  }
  const bool no_edns = message->rcode == Rcode::kFormErr || message->rcode == Rcode::kNotImp;
  if (pending.edns && no_edns &&
      (message->questions.empty() || same_question(*message, pending.client.query))) {
    // Servers older than EDNS answer so (RFC 6891, 7).
    pending.edns = false;
    forward(out, token, pending, now);
    return out;
  }
  if (!same_question(*message, pending.client.query)) return out;
  if (message->truncated) {
    if (transport == Transport::kTcp) return on_upstream_failed(token, now);
    pending.transport = Transport::kTcp;
    pending.id = random_();
    forward(out, token, pending, now);
    return out;
  }
  judge(out, pending.client, *message, now);
  finish(out, found);
  return out;
}

void Proxy::judge(Output& out, const Client& client, const Message& upstream, Time now) {
  const Question& question = client.query.questions[0];
  const std::string name = question.name.text();
  const Decision decision = policy_->decide_name(name);
  if (!decision.allowed) {
    note(name, question.type, false, decision.rule, now);
    answer_code(out, client, refusal_of(name));
    return;
  }
  const bool passes = upstream.rcode == Rcode::kNoError || upstream.rcode == Rcode::kNxDomain;
  const bool refuses = upstream.rcode == Rcode::kRefused;
  Message message = response_to(client.query, passes || refuses ? upstream.rcode : Rcode::kServFail);
  if (passes) {
    Filtered filtered = filter_answer(upstream, question, *policy_);
    for (const auto& [address, why] : filtered.dropped) {
      LogEntry entry;
      entry.kind = LogKind::kAnswer;
      entry.name = to_lower(name);
      entry.detail = type_text(question.type);
      entry.address = address;
      entry.rule = why;
      log_.add(std::move(entry), now);
    }
    if (const auto normal = normal_name(name)) pins_.pin(*normal, filtered.addresses, filtered.ttl, now);
    message.answers = std::move(filtered.answers);
    message.authority = std::move(filtered.authority);
  }
  answer(out, client, message);
}

Output Proxy::on_upstream_failed(std::uint64_t token, Time now) {
  Output out;
  const auto found = pending_.find(token);
  if (found == pending_.end()) return out;
  constexpr unsigned kMostAttempts = 6;
  Pending& pending = found->second;
  if (++pending.attempt >= kMostAttempts || now >= pending.give_up_at) {
    answer_code(out, pending.client, Rcode::kServFail);
    finish(out, found);
    return out;
  }
  pending.transport = Transport::kUdp;
  forward(out, token, pending, now);
  return out;
}

Output Proxy::on_time(Time now) {
  Output out;
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    const auto here = entry++;
    Pending& pending = here->second;
    if (now >= pending.give_up_at) {
      answer_code(out, pending.client, Rcode::kServFail);
      finish(out, here);
    } else if (now >= pending.retry_at) {
      ++pending.attempt;
      pending.transport = Transport::kUdp;
      forward(out, here->first, pending, now);
    }
  }
  return out;
}

std::optional<Time> Proxy::next_deadline() const {
  std::optional<Time> next;
  for (const auto& [token, pending] : pending_) {
    const Time due = std::min(pending.retry_at, pending.give_up_at);
    if (!next || due < *next) next = due;
  }
  return next;
}

Output Proxy::forget_client(std::uint64_t client) {
  Output out;
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    const auto here = entry++;
    if (here->second.client.id == client) finish(out, here);
  }
  return out;
}

void Proxy::finish(Output& out, PendingMap::iterator pending) {
  out.closed.push_back(pending->first);
  pending_.erase(pending);
}

void Proxy::answer_code(Output& out, const Client& client, Rcode rcode) const {
  answer(out, client, response_to(client.query, rcode));
}

void Proxy::answer(Output& out, const Client& client, const Message& message) const {
  std::size_t limit = kLargest;
  if (client.transport == Transport::kUdp) {
    const std::size_t asked = client.query.edns ? client.query.edns->udp_size : kClassicUdp;
    limit = std::clamp(asked, kClassicUdp, kUdpCeiling);
  }
  out.answers.push_back({client.id, client.transport, write_message(message, limit)});
}

void Proxy::note(const std::string& name, std::uint16_t type, bool allowed, std::string rule, Time now) {
  LogEntry entry;
  entry.kind = LogKind::kName;
  entry.allowed = allowed;
  entry.name = to_lower(name);
  entry.detail = type_text(type);
  entry.rule = std::move(rule);
  log_.add(std::move(entry), now);
}

}  // namespace drupe::net::dns
