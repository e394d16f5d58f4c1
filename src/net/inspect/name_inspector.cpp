#include "net/inspect/name_inspector.h"

#include <algorithm>

#include "net/policy/text.h"

namespace drupe::net {
namespace {

constexpr std::size_t kLongestMethod = 24;
constexpr std::size_t kLongestFirstLine = 8192;

/// What some server takes for a blank between the parts of a request line (RFC 9112, 3 lists some; others
/// split at whatever Unicode calls a space).
bool is_blank(char c) {
  return std::string_view(" \t\v\f\r\x1c\x1d\x1e\x1f\x85\xa0").find(c) != std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

bool names_http1(std::string_view line) {
  const std::string lower = to_lower(line);
  return lower.find("http/") != std::string::npos && lower.find("http/2") == std::string::npos;
}

/// Reads a first line that begins with a letter from left to right, so that the answer does not depend on how
/// much of it is there: a word, blanks, something that could begin a target, and a line end behind a version.
Spoken read_first_line(std::string_view text) {
  const auto word_end =
      std::ranges::find_if_not(text, [](char c) { return is_alnum(c) || c == '-' || c == '_'; });
  const auto word = static_cast<std::size_t>(word_end - text.begin());
  if (word > kLongestMethod) return Spoken::kOther;
  std::size_t at = word;
  while (at < text.size() && is_blank(text[at])) ++at;
  if (at > kLongestFirstLine) return Spoken::kHttp;
  if (at == text.size()) return Spoken::kUnknown;
  const char c = to_lower(text[at]);
  const bool connect = equal_ignoring_case(text.substr(0, word), "connect");
  if (at == word || is_control(c) || !(c == '/' || c == '*' || c == 'h' || connect)) return Spoken::kOther;
  for (; at < text.size() && at <= kLongestFirstLine; ++at) {
    if (text[at] == '\n') return names_http1(text.substr(0, at)) ? Spoken::kHttp : Spoken::kOther;
    // Servers differ in what they let pass here; the strict reader refuses it.
    if (is_control(text[at]) && !is_blank(text[at])) return Spoken::kHttp;
  }
  return at > kLongestFirstLine ? Spoken::kHttp : Spoken::kUnknown;
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
  if (std::string_view(" \t\v\f\r\n").find(first) != std::string_view::npos) return Spoken::kHttp;
  if (!is_alnum(first) || is_digit(first)) return Spoken::kOther;
  return read_first_line(first_bytes);
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
