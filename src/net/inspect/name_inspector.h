// Reads what a client says at the beginning of a TCP connection, as far as a decision of the policy demands
// it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "net/inspect/http_reader.h"
#include "net/inspect/name_judge.h"
#include "net/inspect/tls_reader.h"
#include "net/policy/policy.h"

namespace drupe::net {

/// Fed with exactly the client bytes that would be forwarded, in order, each once. Its owner keeps every byte
/// until `release` covers it, and forwards nothing beyond. One connection, one thread.
///
/// With NameCheck::kRequired a connection that speaks neither TLS nor HTTP/1 is refused. With kIfSpoken such
/// a connection passes (among them HTTP/2 without TLS, whose names are not read); it is told from HTTP by its
/// first line, so a first line that has no end yet, and could be a request's, is held.
class NameInspector {
 public:
  struct Options {
    EncryptedHello encrypted = EncryptedHello::kRefuse;
  };
  /// `judge` is asked for every name; it typically calls Policy::accepts_name() with the connection's
  /// decision.
  NameInspector(NameCheck check, NameJudge judge, Options options);

  [[nodiscard]] Inspection on_client(ByteView bytes);
  /// The server's bytes, from the first on, each once; they are only looked at while wants_server(), and may
  /// be forwarded to the client before or after.
  [[nodiscard]] Inspection on_server(ByteView bytes);
  [[nodiscard]] bool wants_server() const;
  /// Nothing more will be judged: the owner may forward both directions without this object.
  [[nodiscard]] bool opaque() const;
  /// The name that was accepted last, as the client spelled it; empty when none was.
  [[nodiscard]] const std::string& name() const;
  /// For names that come from now on: the policy was replaced.
  void set_judge(NameJudge judge);

 private:
  /// Not yet known what the client speaks.
  struct Undecided {
    std::string held;
  };
  struct Opaque {
    std::uint64_t passed = 0;
  };
  struct Refused {
    std::string reason;
  };
  [[nodiscard]] Inspection decide(ByteView bytes);

  NameCheck check_;
  NameJudge judge_;
  Options options_;
  std::variant<Undecided, TlsReader, HttpReader, Opaque, Refused> state_;
};

/// What the first bytes of a client are.
enum class Spoken : std::uint8_t { kUnknown, kTls, kHttp, kOther };
[[nodiscard]] Spoken what_is_spoken(std::string_view first_bytes);

}  // namespace drupe::net
