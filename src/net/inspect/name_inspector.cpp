#include "net/inspect/name_inspector.h"

#include <algorithm>

#include "net/policy/text.h"

namespace drupe::net {
namespace {

constexpr std::size_t kLongestMethod = 24;
constexpr std::size_t kLongestFirstLine = 8192;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// The part of a first line that is there could begin a request: a word, blanks, and something like a target.
bool could_be_request(std::string_view text) {
  const auto word_end =
      std::ranges::find_if_not(text, [](char c) { return is_alnum(c) || c == '-' || c == '_'; });
  const auto word = static_cast<std::size_t>(word_end - text.begin());
  if (word > kLongestMethod) return false;
  if (word == text.size()) return true;
  if (!is_blank(text[word])) return false;
  const std::size_t target = text.find_first_not_of(" \t", word);
  if (target == std::string_view::npos) return true;
  const char c = to_lower(text[target]);
  return c == '/' || c == '*' || c == 'h' || equal_ignoring_case(text.substr(0, word), "connect");
}

bool names_http1(std::string_view line) {
  const std::string lower = to_lower(line);
  const std::size_t version = lower.find("http/");
  return version != std::string::npos && lower.find("http/2") == std::string::npos;
}

}  // namespace

Spoken what_is_spoken(std::string_view first_bytes) {
  if (first_bytes.empty()) return Spoken::kUnknown;
  const char first = first_bytes.front();
  if (first == 22) {  // a handshake record of version 3.x (RFC 8446, 5.1)
    if (first_bytes.size() < 2) return Spoken::kUnknown;
    return first_bytes[1] == 3 ? Spoken::kTls : Spoken::kOther;
  }
  // Some servers read over blank lines and blanks before a request; the strict reader then refuses them.
  if (is_blank(first) || first == '\r' || first == '\n') return Spoken::kHttp;
  if (!is_alnum(first) || is_digit(first)) return Spoken::kOther;
  const std::size_t end = first_bytes.find('\n');
  const std::string_view line = first_bytes.substr(0, end);
  const bool text = std::ranges::none_of(line, [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t' && c != '\r') || c == '\x7f';
  });
  if (!text) return Spoken::kOther;
  if (end != std::string_view::npos) return names_http1(line) ? Spoken::kHttp : Spoken::kOther;
  if (!could_be_request(line)) return Spoken::kOther;
  return line.size() > kLongestFirstLine ? Spoken::kHttp : Spoken::kUnknown;
}

NameInspector::NameInspector(NameCheck check, NameJudge judge, Options options)
    : check_(check), judge_(std::move(judge)), options_(options) {
  if (check == NameCheck::kNone) state_ = Opaque{};
}

Inspection NameInspector::on_client(ByteView bytes) {
  if (auto* tls = std::get_if<TlsReader>(&state_)) return tls->feed(bytes);
  if (auto* http = std::get_if<HttpReader>(&state_)) return http->feed(bytes);
  if (auto* opaque = std::get_if<Opaque>(&state_)) {
    opaque->passed += bytes.size();
    return {Inspection::Verdict::kPass, opaque->passed, {}};
  }
  if (auto* refused = std::get_if<Refused>(&state_))
    return {Inspection::Verdict::kRefuse, 0, refused->reason};
  return decide(bytes);
}

Inspection NameInspector::decide(ByteView bytes) {
  std::string held = std::move(std::get<Undecided>(state_).held) + std::string(as_text(bytes));
  if (held.empty()) return {Inspection::Verdict::kPass, 0, {}};
  Spoken spoken = what_is_spoken(held);
  if (check_ == NameCheck::kRequired && spoken != Spoken::kTls && held.front() != 22) {
    // Whatever begins with a letter is for the strict reader to refuse, so that the reason says what is
    // wrong.
    const bool letter = is_alnum(held.front()) && !is_digit(held.front());
    spoken = letter ? Spoken::kHttp : spoken == Spoken::kHttp ? Spoken::kHttp : Spoken::kOther;
  }
  const bool required = check_ != NameCheck::kNotDenied;
  switch (spoken) {
    case Spoken::kUnknown:
      state_ = Undecided{std::move(held)};
      return {Inspection::Verdict::kNeedMore, 0, {}};
    case Spoken::kTls:
      state_ = TlsReader(judge_, {options_.encrypted, required});
      return std::get<TlsReader>(state_).feed(as_bytes(held));
    case Spoken::kHttp:
      state_ = HttpReader(judge_, {required});
      return std::get<HttpReader>(state_).feed(as_bytes(held));
    case Spoken::kOther:
      break;
  }
  if (check_ == NameCheck::kRequired) {
    state_ = Refused{"the client speaks neither TLS nor HTTP, so it names no server"};
    return {Inspection::Verdict::kRefuse, 0, std::get<Refused>(state_).reason};
  }
  state_ = Opaque{held.size()};
  return {Inspection::Verdict::kPass, held.size(), {}};
}

Inspection NameInspector::on_server(ByteView bytes) {
  if (auto* http = std::get_if<HttpReader>(&state_)) return http->feed_server(bytes);
  return on_client({});
}

bool NameInspector::wants_server() const {
  const auto* http = std::get_if<HttpReader>(&state_);
  return http != nullptr && http->wants_server();
}

bool NameInspector::opaque() const {
  if (const auto* tls = std::get_if<TlsReader>(&state_)) return tls->opaque();
  if (const auto* http = std::get_if<HttpReader>(&state_)) return http->opaque();
  return std::holds_alternative<Opaque>(state_);
}

const std::string& NameInspector::name() const {
  static const std::string none;
  if (const auto* tls = std::get_if<TlsReader>(&state_)) return tls->name();
  if (const auto* http = std::get_if<HttpReader>(&state_)) return http->name();
  return none;
}

void NameInspector::set_judge(NameJudge judge) {
  if (auto* tls = std::get_if<TlsReader>(&state_)) tls->set_judge(judge);
  if (auto* http = std::get_if<HttpReader>(&state_)) http->set_judge(judge);
  judge_ = std::move(judge);
}

}  // namespace drupe::net
