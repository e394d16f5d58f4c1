#include "engine/names.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "engine/sandbox_files.h"
#include "shim/record.h"

namespace drupe {
namespace {

constexpr std::size_t kLongestName = 128;
constexpr std::size_t kListedCandidates = 8;

constexpr std::array kFirstWords = {
    "amber",  "bold",  "brave",  "brisk", "calm",  "clear", "crisp", "deep",   "eager", "early",  "fair",
    "fine",   "fresh", "gentle", "glad",  "green", "happy", "keen",  "kind",   "light", "lively", "lucky",
    "mellow", "merry", "mild",   "neat",  "noble", "plain", "proud", "quick",  "quiet", "rapid",  "ready",
    "ripe",   "round", "sharp",  "sleek", "smart", "snug",  "solid", "spry",   "still", "stout",  "sunny",
    "sure",   "sweet", "swift",  "tidy",  "true",  "vivid", "warm",  "wise",   "witty", "young",  "zesty",
    "azure",  "coral", "golden", "ivory", "jade",  "misty", "rosy",  "silver", "velvet"};
constexpr std::array kSecondWords = {
    "almond",  "apricot", "badger", "beaver", "birch",  "bison", "cedar", "cherry", "crane", "cricket",
    "date",    "dolphin", "falcon", "fern",   "finch",  "fox",   "gecko", "hazel",  "heron", "ibis",
    "jackal",  "kiwi",    "lemur",  "linden", "lynx",   "mango", "maple", "marten", "mole",  "myrtle",
    "newt",    "oak",     "olive",  "oriole", "otter",  "owl",   "panda", "peach",  "pecan", "pine",
    "plum",    "poplar",  "quail",  "rabbit", "raven",  "robin", "rowan", "salmon", "seal",  "sloe",
    "sparrow", "stork",   "swan",   "tapir",  "thrush", "toad",  "trout", "turtle", "viper", "walnut",
    "weasel",  "willow",  "wren",   "yew"};

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string link_path(const std::string& name) {
  return "names/" + name;
}

/// Text of the link, empty when there is none or it is no id.
std::string read_link(const Home& home, const std::string& name) {
  char text[PATH_MAX];
  const ssize_t size = ::readlinkat(home.dir(), link_path(name).c_str(), text, sizeof(text));
  if (size <= 0) return {};
  std::string id(text, static_cast<std::size_t>(size));
  return is_sandbox_id(id) ? id : std::string();
}

}  // namespace

Status check_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kLongestName && is_alphanumeric(name.front()) &&
                    std::ranges::all_of(
                        name, [](char c) { return is_alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
  if (good) return {};
  return fail(ErrorCode::kInvalidArgument,
              name.size() > kLongestName ? "The name is longer than 128 characters"
                                         : "The name \"" + std::string(name) + "\" cannot be used",
              "Names are made of letters, digits, '_', '.' and '-' and begin with a letter or digit.");
}

std::string invent_name() {
  const std::string random = random_bytes(2);
  const auto first = static_cast<unsigned char>(random[0]) % kFirstWords.size();
  const auto second = static_cast<unsigned char>(random[1]) % kSecondWords.size();
  return std::string(kFirstWords[first]) + "_" + kSecondWords[second];
}

Result<std::optional<std::string>> lookup_name(const Home& home, const std::string& name) {
  const std::string id = read_link(home, name);
  if (id.empty()) return std::nullopt;
  const auto dir = open_at(home.dir(), Home::sandbox(id), O_DIRECTORY | O_RDONLY | O_NOFOLLOW);
  if (!dir) return std::nullopt;
  const auto record = read_own_record(dir->get(), id);
  // A directory gets its place with its record and loses it last: without one it is being removed. A record
  // that cannot be read keeps its name: its sandbox can still be named in order to be removed.
  if (!record && record.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (record && (record->name != name || is_going(*record))) return std::nullopt;
  return id;
}

Status check_free_name(const Home& home, const std::string& name, const std::string& id) {
  DRUPE_TRY(check_name(name));
  DRUPE_ASSIGN(const auto holder, lookup_name(home, name));
  if (holder && *holder != id)
    return fail(ErrorCode::kAlreadyExists, "The name " + name + " is taken by sandbox " + *holder,
                "Choose another name, or remove that sandbox with drupe rm " + name + ".");
  return {};
}

Status take_name(const Home& home, const std::string& name, const std::string& id) {
  DRUPE_TRY(check_free_name(home, name, id));
  const std::string path = link_path(name);
  if (::unlinkat(home.dir(), path.c_str(), 0) != 0 && errno != ENOENT)
    return fail_sys("Replacing the stale name " + name + " failed", errno);
  if (::symlinkat(id.c_str(), home.dir(), path.c_str()) != 0)
    return fail_sys("Writing the name " + name + " failed", errno);
  return {};
}

void drop_name(const Home& home, const std::string& name, const std::string& id) {
  if (check_name(name) && read_link(home, name) == id) ::unlinkat(home.dir(), link_path(name).c_str(), 0);
}

Result<std::string> match_prefix(const std::vector<std::string>& candidates, std::string_view text) {
  std::vector<std::string> found;
  for (const std::string& candidate : candidates) {
    if (candidate == text) return candidate;
    if (candidate.starts_with(text)) found.push_back(candidate);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) return no_sandbox(text);
  std::string listed;
  for (std::size_t i = 0; i < std::min(found.size(), kListedCandidates); ++i)
    listed += (i == 0 ? "" : ", ") + found[i];
  if (found.size() > kListedCandidates) listed += ", ...";
  return fail(
      ErrorCode::kInvalidArgument,
      "\"" + std::string(text) + "\" may mean " + std::to_string(found.size()) + " sandboxes: " + listed,
      "Write more of the id or name.");
}

Result<std::string> resolve_sandbox(const Home& home, std::string_view id_or_name) {
  const std::string text(id_or_name);
  if (!check_name(text))
    return fail(ErrorCode::kNotFound, "There is no sandbox with this name or id",
                "drupe ps -a lists all sandboxes.");
  DRUPE_ASSIGN(const auto named, lookup_name(home, text));
  if (named) return *named;
  DRUPE_ASSIGN(const auto ids, home.sandbox_ids());
  auto by_id = match_prefix(ids, text);
  if (by_id || by_id.error().code != ErrorCode::kNotFound) return by_id;
  DRUPE_ASSIGN(auto names, home.names_in("names"));
  std::erase_if(names, [&](const std::string& name) {
    if (!name.starts_with(text)) return true;
    const auto holder = lookup_name(home, name);
    return !holder || !*holder;
  });
  DRUPE_ASSIGN(const std::string name, match_prefix(names, text));
  return read_link(home, name);
}

}  // namespace drupe
