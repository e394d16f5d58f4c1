// Delegated tokens: each works with one sandbox and nothing else of its owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/store/store.h"
#include "base/result.h"

namespace drupe::api {

struct Token {
  std::string sandbox_id;
  std::string hint;  ///< Enough to recognise it by.
  std::int64_t created_ns = 0;
  std::optional<std::int64_t> rotated_ns;
};

/// Callable from any thread. A token's text is never stored, only its hash. A sandbox has one or none.
class TokenStore {
 public:
  virtual ~TokenStore() = default;

  /// kAlreadyExists when the sandbox has one.
  virtual Status add_token(const Token& token, std::string_view hash) = 0;
  /// The old one is good for nothing from here on. False when there is none.
  virtual Result<bool> replace_token(const Token& token, std::string_view hash) = 0;
  virtual Result<std::optional<Token>> find_token(std::string_view sandbox_id) = 0;
  /// Nothing to drop is success.
  virtual Status drop_token(std::string_view sandbox_id) = 0;

  struct Holder {
    std::string sandbox_id;
    User owner;
  };
  /// What the token with this hash stands for, unless its sandbox has ended.
  virtual Result<std::optional<Holder>> holder_of_token(std::string_view hash) = 0;
};

/// Over the same file as the store, which has migrated it before.
Result<std::unique_ptr<TokenStore>> open_sqlite_tokens(const std::string& path);

}  // namespace drupe::api
