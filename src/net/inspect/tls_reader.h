// The client's side of a TLS connection up to the point where nothing in it names a server any more.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "net/inspect/client_hello.h"
#include "net/inspect/name_judge.h"

namespace drupe::net {

/// How a hello with an encrypted part is treated; see ClientHello::encrypted.
enum class EncryptedHello : std::uint8_t {
  kRefuse,
  /// The outer name counts. A client with a real key can then reach every name that the same address serves
  /// by encrypted hello, so this is for clients that are trusted not to (browsers that cannot turn the fake
  /// off).
  kOuterName,
};

struct TlsOptions {
  EncryptedHello encrypted = EncryptedHello::kRefuse;
  bool name_required = true;  ///< A hello without a server name is refused.
};

/// Fed with the client's bytes in order, in pieces of any size. Judges the first hello, and every further
/// plain hello (after a HelloRetryRequest, RFC 8446, 4.1.4), which must repeat the name. Hellos inside
/// encryption (TLS 1.2 renegotiation) are not seen. One connection, one thread.
class TlsReader {
 public:
  TlsReader(NameJudge judge, TlsOptions options) : judge_(std::move(judge)), options_(options) {}

  [[nodiscard]] Inspection feed(ByteView bytes);
  /// Nothing more will be judged.
  [[nodiscard]] bool opaque() const { return phase_ == Phase::kOpaque; }
  /// The accepted server name as sent; empty before.
  [[nodiscard]] const std::string& name() const { return name_; }
  void set_judge(NameJudge judge) { judge_ = std::move(judge); }

 private:
  enum class Phase : std::uint8_t {
    kHello,    ///< Handshake records are put together to a hello.
    kBetween,  ///< A hello was accepted; the next record's header comes.
    kSkip,     ///< Inside a record without meaning here.
    kOpaque,
    kRefused,
  };
  void header_complete();
  void hello_grew();
  void hello_complete();
  void refuse(std::string reason);
  [[nodiscard]] Inspection result() const;

  NameJudge judge_;
  TlsOptions options_;
  Phase phase_ = Phase::kHello;
  std::array<std::uint8_t, 5> header_{};
  std::size_t header_size_ = 0;
  std::size_t left_ = 0;  ///< Bytes of the current record still to come.
  std::string hello_;     ///< Handshake bytes so far.
  bool first_accepted_ = false;
  bool early_data_ = false;
  std::uint64_t consumed_ = 0;
  std::uint64_t judged_ = 0;
  std::uint64_t skipped_early_ = 0;
  std::string name_;
  std::string reason_;
};

}  // namespace drupe::net
