// Many rules, compiled so that asking costs the same whatever their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/policy/rule.h"

namespace drupe::net {

/// A rule as configured, and where it came from ("@pip"); the origin only shows in decisions.
struct RuleText {
  std::string text;
  std::string origin;

  bool operator==(const RuleText&) const = default;
};

/// Names are found by one hash lookup for each of their suffixes, addresses by one for each prefix length in
/// use. Owns its rules; immutable after compile(); pointers it returns live as long as it does. Any thread.
class RuleSet {
 public:
  RuleSet() = default;
  /// At most kMaxRules (kLimit); a malformed one is kInvalidArgument with its number, from 1.
  static Result<RuleSet> compile(std::span<const RuleText> texts);

  /// A rule that covers `name` on `port`: one that names the port before one for every port. Rules by
  /// address and "*" are not among them. With port 0 only rules for every port.
  [[nodiscard]] const Rule* find_host(std::string_view name, std::uint16_t port) const;
  /// A rule that mentions `name` with whatever port.
  [[nodiscard]] const Rule* find_host(std::string_view name) const;
  /// "*" or a range that contains `address`, for `port` or for every port; the most specific range.
  [[nodiscard]] const Rule* find_address(const IpAddress& address, std::uint16_t port) const;
  /// "*" with `port` or with none (port 0: only "*" itself); see any_star().
  [[nodiscard]] const Rule* find_star(std::uint16_t port) const { return covering(star_, port); }
  /// "*" with whatever port.
  [[nodiscard]] const Rule* any_star() const { return star_.empty() ? nullptr : rule_of(star_.front()); }
  [[nodiscard]] bool has_hosts() const { return !hosts_.empty() || !subdomains_.empty(); }
  [[nodiscard]] std::size_t size() const { return rules_.size(); }

  /// Counts hash lookups and comparisons of the queries made while it lives, in this thread: a test shows
  /// with it that a query does not scan.
  class StepCount {
   public:
    StepCount();
    ~StepCount();
    StepCount(const StepCount&) = delete;
    StepCount& operator=(const StepCount&) = delete;
    [[nodiscard]] std::size_t steps() const { return steps_; }

   private:
    friend class RuleSet;
    std::size_t steps_ = 0;
  };

  static constexpr std::size_t kMaxRules = 65536;

 private:
  /// Sorted by port; 0 is "every port" and comes first. The second member is an index of rules_.
  using Ports = std::vector<std::pair<std::uint16_t, std::uint32_t>>;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };
  using Names = std::unordered_map<std::string, Ports, TextHash, std::equal_to<>>;
  void add(Rule rule);
  void sort_ports();
  [[nodiscard]] const Rule* rule_of(const Ports::value_type& entry) const { return &rules_[entry.second]; }
  [[nodiscard]] const Rule* exactly(const Ports& ports, std::uint16_t port) const;
  [[nodiscard]] const Rule* covering(const Ports& ports, std::uint16_t port) const;
  template <class Visit>
  void each_host_entry(std::string_view name, Visit visit) const;

  std::vector<Rule> rules_;
  Names hosts_, subdomains_;
  /// Ranges of one prefix length; the vectors of a family are sorted by length, longest first.
  struct Networks {
    std::uint8_t bits;
    std::unordered_map<IpAddress, Ports, IpAddressHash> by_base;
  };
  std::vector<Networks> v4_, v6_;
  Ports star_;
};

}  // namespace drupe::net
