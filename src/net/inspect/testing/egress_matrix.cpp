#include "net/inspect/testing/egress_matrix.h"

#include <array>
#include <cstdlib>
#include <map>

#include "net/dns/proxy.h"
#include "net/inspect/name_inspector.h"
#include "net/inspect/testing/hello.h"

namespace drupe::net::testing {
namespace {

using Says = Attempt::Says;

constexpr Attempt kAttempts[] = {
    {"look up good.example", "good.example", "", 0, Says::kNothing, ""},
    {"TLS to good.example:443", "good.example", "198.51.100.10", 443, Says::kTls, "good.example"},
    {"HTTP to good.example:80", "good.example", "198.51.100.10", 80, Says::kHttp, "good.example"},
    {"TLS to good.example:8443", "good.example", "198.51.100.10", 8443, Says::kTls, "good.example"},
    {"SSH to good.example:22", "good.example", "198.51.100.10", 22, Says::kOther, ""},
    {"no TLS and no HTTP to good.example:443", "good.example", "198.51.100.10", 443, Says::kOther, ""},
    {"UDP to good.example:443 (QUIC)", "good.example", "198.51.100.10", 443, Says::kDatagram, ""},
    {"UDP to good.example:22", "good.example", "198.51.100.10", 22, Says::kDatagram, ""},
    {"TLS over IPv6 to good.example:443", "good.example", "2001:db8::10", 443, Says::kTls, "good.example"},
    {"TLS to www.good.example:443", "www.good.example", "198.51.100.11", 443, Says::kTls, "www.good.example"},
    {"TLS to good.example's address, server name other.example", "good.example", "198.51.100.10", 443,
     Says::kTls, "other.example"},
    {"the same on port 22", "good.example", "198.51.100.10", 22, Says::kTls, "other.example"},
    {"TLS to good.example:443 without a server name", "good.example", "198.51.100.10", 443,
     Says::kTlsNameless, ""},
    {"TLS to good.example:443, encrypted hello", "good.example", "198.51.100.10", 443, Says::kTlsEncrypted,
     "good.example"},
    {"HTTP to good.example:80, second request for other.example", "good.example", "198.51.100.10", 80,
     Says::kHttpTwice, "good.example"},
    {"TLS to 198.51.100.10:443 without a lookup, server name good.example", "", "198.51.100.10", 443,
     Says::kTls, "good.example"},
    {"TLS to stranger.example:443", "stranger.example", "198.51.100.99", 443, Says::kTls, "stranger.example"},
    {"TLS to stranger.example's address, server name good.example", "good.example", "198.51.100.99", 443,
     Says::kTls, "good.example"},
    {"TLS to [2001:db8::10]:443 without a lookup", "", "2001:db8::10", 443, Says::kTls, "good.example"},
    {"UDP to another resolver, 198.51.100.53:53", "", "198.51.100.53", 53, Says::kDatagram, ""},
    {"HTTP to inside.example:80 (10.0.0.5)", "inside.example", "10.0.0.5", 80, Says::kHttp, "inside.example"},
    {"HTTP to 10.0.0.5:80", "", "10.0.0.5", 80, Says::kHttp, "10.0.0.5"},
    {"HTTP to 169.254.169.254:80 (metadata)", "", "169.254.169.254", 80, Says::kHttp, "169.254.169.254"},
    {"the same as [64:ff9b::a9fe:a9fe]:80", "", "64:ff9b::a9fe:a9fe", 80, Says::kHttp, "x"},
    {"SSH to the host itself, 203.0.113.5:22", "", "203.0.113.5", 22, Says::kOther, ""},
};

RuleTexts policy(std::initializer_list<const char*> allow, std::vector<std::string> opened = {},
                 std::initializer_list<const char*> deny = {}) {
  RuleTexts rules;
  rules.mode = Mode::kPolicy;
  for (const char* text : allow) rules.allow.push_back({text, {}});
  for (const char* text : deny) rules.deny.push_back({text, {}});
  rules.allow_private = std::move(opened);
  return rules;
}

RuleTexts mode(Mode value, std::initializer_list<const char*> deny = {}) {
  RuleTexts rules = policy({}, {}, deny);
  rules.mode = value;
  return rules;
}

std::vector<MatrixRow> make_rows() {
  return {
      {"`none`", mode(Mode::kNone), {}, "-------------------------"},
      {"`open`", mode(Mode::kOpen), {}, "yyyyyyyyyyyyyyyyyyyy-----"},
      {"`open`, deny `good.example`", mode(Mode::kOpen, {"good.example"}), {}, "----yyyy-yyyy---y--y-----"},
      {"`open`, deny `198.51.100.0/24`",
       mode(Mode::kOpen, {"198.51.100.0/24"}),
       {},
       "y-------y---------y------"},
      {"`good.example`", policy({"good.example"}), {}, "yyyy----y----------------"},
      {"`good.example:443`", policy({"good.example:443"}), {}, "yy------y----------------"},
      {"`good.example:22`", policy({"good.example:22"}), {}, "y---y--y-----------------"},
      {"`good.example`, `other.example`",
       policy({"good.example", "other.example"}),
       {},
       "yyyy----y-yy--y----------"},
      {"`*.good.example`", policy({"*.good.example"}), {}, "---------y---------------"},
      {"`*.example`, deny `stranger.example`",
       policy({"*.example"}, {}, {"stranger.example"}),
       {},
       "yyyy----yyyy--y----------"},
      {"`198.51.100.10`", policy({"198.51.100.10"}), {}, "-yyyyyyy--yyyyyy---------"},
      {"`198.51.100.10:443`", policy({"198.51.100.10:443"}), {}, "-y---yy---y-yy-y---------"},
      {"`198.51.100.0/24:443`", policy({"198.51.100.0/24:443"}), {}, "-y---yy--yy-yy-yyy-------"},
      {"`[2001:db8::10]:443`", policy({"[2001:db8::10]:443"}), {}, "--------y---------y------"},
      {"`2001:db8::/32`", policy({"2001:db8::/32"}), {}, "--------y---------y------"},
      {"`*`", policy({"*"}), {}, "yyyyyyyyyyyyyyyyyyyy-----"},
      {"`*:443`", policy({"*:443"}), {}, "yy---yy-yyy-yy-yyyy------"},
      {"`0.0.0.0/0`", policy({"0.0.0.0/0"}), {}, "-yyyyyyy-yyyyyyyyy-y-----"},
      {"`10.0.0.0/8`", policy({"10.0.0.0/8"}), {}, "-------------------------"},
      {"`10.0.0.0/8`, opened `10.0.0.0/8`",
       policy({"10.0.0.0/8"}, {"10.0.0.0/8"}),
       {},
       "--------------------yy---"},
      {"`inside.example`, opened `10.0.0.0/8`",
       policy({"inside.example"}, {"10.0.0.0/8"}),
       {},
       "--------------------y----"},
      {"`169.254.0.0/16`, opened `169.254.0.0/16`",
       policy({"169.254.0.0/16"}, {"169.254.0.0/16"}),
       {},
       "-------------------------"},
      {"`*`, opened `169.254.169.254`", policy({"*"}, {"169.254.169.254"}), {}, "yyyyyyyyyyyyyyyyyyyy--yy-"},
      {"`240.0.0.0/4`", policy({"240.0.0.0/4"}), {}, "-------------------------"},
      {"`*`, ceiling `good.example:443`", policy({"*"}), policy({"good.example:443"}),
       "yy------y----------------"},
  };
}

/// One sandbox with a resolver whose upstream knows the names of the world.
class World {
 public:
  explicit World(const MatrixRow& row)
      : policy_(compile(row)), proxy_(policy_, pins_, log_, [] { return std::uint16_t{1}; }, {}) {}

  bool allows(const Attempt& attempt) {
    const auto address = IpAddress::parse(attempt.address);
    if (!attempt.lookup.empty()) {
      const bool found = look_up(attempt.lookup, address && !address->is_v4());
      if (attempt.says == Says::kNothing) return found;
      static_cast<void>(look_up("other.example", false));
    }
    const Protocol protocol = attempt.says == Says::kDatagram ? Protocol::kUdp : Protocol::kTcp;
    const Decision decision =
        policy_->decide({protocol, *address, attempt.port}, pins_.names_at(*address, now_));
    if (!decision.allowed || protocol == Protocol::kUdp) return decision.allowed;
    NameInspector inspector(
        decision.check,
        [&](std::string_view name) { return policy_->accepts_name(decision, name, attempt.port); }, {});
    const std::string bytes = client_bytes(attempt);
    return inspector.on_client(as_bytes(bytes)).release == bytes.size();
  }

 private:
  static std::shared_ptr<const Policy> compile(const MatrixRow& row) {
    HostFacts host;
    host.own_addresses = {*IpAddress::parse("203.0.113.5")};
    host.has_ipv6 = true;
    auto compiled = Policy::compile({row.rules, row.ceiling}, host, 1);
    if (!compiled) std::abort();
    return *compiled;
  }

  bool look_up(std::string_view name, bool v6) {
    static const std::map<std::string_view, std::string_view> zone{{"good.example", "198.51.100.10"},
                                                                   {"other.example", "198.51.100.10"},
                                                                   {"www.good.example", "198.51.100.11"},
                                                                   {"stranger.example", "198.51.100.99"},
                                                                   {"inside.example", "10.0.0.5"}};
    dns::Message query;
    query.questions.push_back({*dns::Name::from_text(name), v6 ? dns::kAaaa : dns::kA, dns::kInternet});
    const auto asked =
        proxy_.on_query(1, dns::Transport::kUdp, as_bytes(dns::write_message(query, 512)), now_);
    if (asked.forwards.empty()) return false;
    auto reply = dns::parse_message(as_bytes(asked.forwards[0].message));
    if (!reply) std::abort();
    const IpAddress address = *IpAddress::parse(v6 ? "2001:db8::10" : zone.at(name));
    reply->response = true;
    reply->answers.push_back({query.questions[0].name, query.questions[0].type, dns::kInternet, 300,
                              std::string(as_text(address.wire()))});
    const auto done = proxy_.on_upstream(asked.forwards[0].token, asked.forwards[0].transport,
                                         as_bytes(dns::write_message(*reply, 512)), now_);
    const auto answer = dns::parse_message(as_bytes(done.answers.at(0).message));
    return answer && !answer->answers.empty();
  }

  static std::string client_bytes(const Attempt& attempt) {
    const std::string name(attempt.name);
    HelloOptions hello;
    if (!name.empty()) hello.names = {name};
    hello.encrypted = attempt.says == Says::kTlsEncrypted;
    const auto request = [](const std::string& host) {
      return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
    };
    switch (attempt.says) {
      case Says::kTls:
      case Says::kTlsNameless:
      case Says::kTlsEncrypted:
        return records(handshake(hello_body(hello)));
      case Says::kHttp:
        return request(name);
      case Says::kHttpTwice:
        return request(name) + request("other.example");
      default:
        return "SSH-2.0-client\r\n";
    }
  }

  Time now_{std::chrono::seconds(1000)};
  std::shared_ptr<const Policy> policy_;
  Pins pins_;
  EgressLog log_{[] { return 0; }};
  dns::Proxy proxy_;
};

}  // namespace

std::span<const Attempt> attempts() {
  return kAttempts;
}

std::span<const MatrixRow> matrix_rows() {
  static const std::vector<MatrixRow> rows = make_rows();
  return rows;
}

std::string outcome(const MatrixRow& row) {
  std::string out;
  for (const Attempt& attempt : attempts()) out += World(row).allows(attempt) ? 'y' : '-';
  return out;
}

std::string matrix_page() {
  std::string page =
      "# What each rule lets through\n\n"
      "Written by `scripts/egress-matrix.sh` from `src/net/inspect/testing/egress_matrix.cpp`; a test "
      "compares both. Every "
      "cell is tried\nthrough the resolver, the policy and the inspector: **y** is allowed, an empty cell is "
      "blocked.\n\n"
      "The world: `good.example` and `other.example` are both at 198.51.100.10 and 2001:db8::10, "
      "`www.good.example` is at "
      "198.51.100.11,\n`stranger.example` at 198.51.100.99, `inside.example` at 10.0.0.5; the host itself is "
      "203.0.113.5. "
      "Without a word before it, a\nrule is an allow rule under `policy`.\n\n| rules |";
  for (std::size_t i = 1; i <= attempts().size(); ++i) page += " " + std::to_string(i) + " |";
  page += "\n|---|";
  for (std::size_t i = 0; i < attempts().size(); ++i) page += "---|";
  page += "\n";
  for (const MatrixRow& row : matrix_rows()) {
    page += "| " + std::string(row.title) + " |";
    for (const char cell : outcome(row)) page += cell == 'y' ? " y |" : "   |";
    page += "\n";
  }
  page += "\nThe columns:\n\n";
  int number = 0;
  for (const Attempt& attempt : attempts())
    page += std::to_string(++number) + ". " + std::string(attempt.title) + "\n";
  return page;
}

}  // namespace drupe::net::testing
