// What each form of rule lets through, as data: every row is a set of rules, every column something a guest
// tries.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/policy/spec.h"

namespace drupe::net::testing {

/// One column. The world it is tried in: good.example and other.example are both at 198.51.100.10 and
/// 2001:db8::10, www.good.example is at 198.51.100.11, stranger.example at 198.51.100.99, inside.example
/// at 10.0.0.5; the host itself is 203.0.113.5.
struct Attempt {
  enum class Says : unsigned char {
    kNothing,       ///< Only looks the name up.
    kTls,           ///< A hello with the server name `name`.
    kTlsNameless,   ///< A hello without a server name.
    kTlsEncrypted,  ///< A hello with the server name `name` and an encrypted part.
    kHttp,          ///< A request with the host `name`.
    kHttpTwice,     ///< The same, then on the same connection one for other.example.
    kOther,         ///< Neither TLS nor HTTP.
    kDatagram,
  };
  std::string_view title;
  std::string_view lookup;   ///< Name that is looked up before; empty: none.
  std::string_view address;  ///< Connected to; empty for kNothing.
  std::uint16_t port = 0;
  Says says = Says::kNothing;
  std::string_view name;
};
[[nodiscard]] std::span<const Attempt> attempts();

struct MatrixRow {
  std::string_view title;
  RuleTexts rules;
  std::optional<RuleTexts> ceiling;
  std::string_view expected;  ///< One character for each attempt: 'y' allowed, '-' blocked.
};
[[nodiscard]] std::span<const MatrixRow> matrix_rows();

/// What really happens, through resolver, policy and inspector: characters as in MatrixRow::expected.
[[nodiscard]] std::string outcome(const MatrixRow& row);

/// The page docs/egress-matrix.md.
[[nodiscard]] std::string matrix_page();

}  // namespace drupe::net::testing
