#include "net/policy/rule.h"

#include <algorithm>
#include <optional>

#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

/// A cursor over one rule; offsets count from the rule's first byte.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Rule> parse() {
    if (text_.empty()) return bad(0, "it is empty");
    if (text_.size() > kLongestRule) return bad(kLongestRule, "it is too long");
    if (const std::size_t mark = text_.find("://"); mark != std::string_view::npos)
      return bad(mark, "a rule is no URL; leave the scheme and the path away");
    if (text_.front() == '@') return bad(0, "there is no such preset, or presets cannot stand here");
    rule_.text = text_;
    if (text_.front() == '*') return star();
    if (text_.front() == '[') return bracket();
    const std::size_t slash = text_.find('/');
    if (slash != std::string_view::npos) return range(slash);
    if (std::ranges::count(text_, ':') >= 2) return plain_v6();
    return host_or_v4(std::min(text_.find(':'), text_.size()));
  }

 private:
  [[nodiscard]] std::unexpected<Error> bad(std::size_t offset, std::string_view why) const {
    return fail(ErrorCode::kInvalidArgument,
                "The rule " + shown(text_) + " is wrong at column " + std::to_string(offset + 1) + ": " +
                    std::string(why),
                "Rules are host, host:port, *.host, ip, ip:port, cidr, cidr:port, [v6], [v6]:port or *.");
  }

  Result<Rule> star() {
    if (text_.size() > 1 && text_[1] == '.') {
      const std::size_t colon = std::min(text_.find(':'), text_.size());
      DRUPE_TRY(host(2, colon));
      rule_.kind = Rule::Kind::kSubdomains;
      return with_port(colon);
    }
    if (text_.size() > 1 && text_[1] != ':')
      return bad(1, "'*' stands alone or before a dot, as in *.example.com");
    rule_.kind = Rule::Kind::kAny;
    return with_port(1);
  }

  Result<Rule> bracket() {
    const std::size_t close = text_.find(']');
    if (close == std::string_view::npos) return bad(text_.size(), "the ']' is missing");
    const std::string_view inner = text_.substr(1, close - 1);
    if (inner.find(':') == std::string_view::npos) return bad(1, "brackets hold an IPv6 address");
    DRUPE_TRY(network(1, inner));
    if (close + 1 < text_.size() && text_[close + 1] == '/')
      return bad(close + 1, "write the prefix length inside the brackets, as in [2001:db8::/32]:443");
    return with_port(close + 1);
  }

  Result<Rule> range(std::size_t slash) {
    const bool address = std::ranges::all_of(text_.substr(0, slash), [](char c) {
      return is_digit(c) || (to_lower(c) >= 'a' && to_lower(c) <= 'f') || c == '.' || c == ':';
    });
    if (!address) return bad(slash, "a rule is no URL; leave the path away");
    const std::size_t colon = std::min(text_.find(':', slash), text_.size());
    DRUPE_TRY(network(0, text_.substr(0, colon)));
    return with_port(colon);
  }

  Result<Rule> plain_v6() {
    DRUPE_TRY(network(0, text_));
    return rule_;
  }

  Result<Rule> host_or_v4(std::size_t colon) {
    const std::string_view word = text_.substr(0, colon);
    if (!word.empty() && std::ranges::all_of(word, [](char c) { return is_digit(c) || c == '.'; })) {
      DRUPE_TRY(network(0, word));
    } else {
      DRUPE_TRY(host(0, colon));
      rule_.kind = Rule::Kind::kHost;
    }
    return with_port(colon);
  }

  Status host(std::size_t begin, std::size_t end) {
    const std::string_view word = text_.substr(begin, end - begin);
    if (word.empty()) return bad(begin, "a host name is missing");
    const std::size_t mistake = name_mistake(word);
    if (mistake != word.size()) return bad(begin + mistake, name_advice(word, mistake));
    rule_.host = normal_name(word).value_or(std::string());
    return {};
  }

  static std::string_view name_advice(std::string_view word, std::size_t mistake) {
    const char c = mistake < word.size() ? word[mistake] : '\0';
    if (static_cast<unsigned char>(c) >= 0x80)
      return "names of other scripts are written in their form xn--...";
    if (c == '*') return "'*' stands alone or first, as in *.example.com";
    if (c == '@') return "a rule has no user name";
    if (c == '.') return "a part of the name is empty";
    if (is_digit(c)) return "a name does not end in a number, and this is no address";
    if (is_alnum(c) || c == '-' || c == '_') return "a name has at most 253 characters, each part at most 63";
    return "a host name has letters, digits, '-', '_' and '.'";
  }

  Status network(std::size_t begin, std::string_view word) {
    rule_.kind = Rule::Kind::kNetwork;
    const std::size_t slash = word.find('/');
    const auto address = IpAddress::parse(word.substr(0, slash));
    if (!address)
      return bad(begin, word.find('%') == std::string_view::npos
                            ? "this is not an address; numbers have no leading zeros"
                            : "an address has no zone");
    if (slash == std::string_view::npos) {
      rule_.network = Cidr::only(*address);
      return {};
    }
    if (const auto cidr = Cidr::parse(word)) {
      rule_.network = *cidr;
      return {};
    }
    return bad(begin + slash + 1, prefix_advice(*address, word.substr(slash + 1)));
  }

  static std::string prefix_advice(const IpAddress& address, std::string_view length) {
    const unsigned most = address.is_v4() ? 32 : 128;
    if (!length.empty() && length.size() <= 3 && std::ranges::all_of(length, is_digit)) {
      unsigned bits = 0;
      for (const char c : length) bits = bits * 10 + static_cast<unsigned>(c - '0');
      if (bits <= most && (length.size() == 1 || length.front() != '0'))
        return "the address has bits behind the prefix; " + masked(address, bits).to_string() + "/" +
               std::to_string(bits) + " may be meant";
    }
    return "a prefix length is a number from 0 to " + std::to_string(most);
  }

  Result<Rule> with_port(std::size_t colon) {
    if (colon == text_.size()) return rule_;
    if (text_[colon] != ':') return bad(colon, "only ':' and a port may follow");
    const std::string_view digits = text_.substr(colon + 1);
    unsigned port = 0;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      if (!is_digit(digits[i])) return bad(colon + 1 + i, "a port is one number from 1 to 65535");
      port = port * 10 + static_cast<unsigned>(digits[i] - '0');
      if (port > 65535) return bad(colon + 1, "a port is one number from 1 to 65535");
    }
    if (port == 0 || digits.front() == '0') return bad(colon + 1, "a port is one number from 1 to 65535");
    rule_.port = static_cast<std::uint16_t>(port);
    return rule_;
  }

  std::string_view text_;
  Rule rule_;
};

}  // namespace

Result<Rule> parse_rule(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace drupe::net
