// $DRUPE_HOME: its layout, its version, and the short locks over it.
//
//   VERSION          format of everything below, "1\n"
//   lock             names and renames; held for microseconds
//   images/          the image store's
//   bases/<key>/     base snapshots (base_snapshot.h)
//   kernels/<digest>/  vmlinux and initramfs.cpio that base snapshots and sandboxes link
//   networks/<id>/   private networks (private_networks.h)
//   sandboxes/<id>/  one directory each: record.json, lock, shim.sock, log and the links of every file it
//   needs names/<name>     symbolic link whose text is the id; valid only if that sandbox's record has this
//   name promised/<id>.<mib>  memory promised to sandboxes that run (admission.h) locks/           files that
//   are only locked: one for each base key, one for each restore slot tmp/             directories in the
//   making, and those being removed; what is not locked there is garbage cache/           facts about this
//   machine that are costly to find; may be removed at any time
#pragma once

#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/files.h"

namespace drupe {

inline constexpr int kHomeVersion = 1;

/// An open home. Movable; owns the descriptor of its directory. All paths below are relative to dir().
class Home {
 public:
  /// `path` empty: $DRUPE_HOME, else $XDG_DATA_HOME/drupe, else $HOME/.local/share/drupe. Creates what is
  /// missing with mode 0700. A home of a newer version is refused, an older one is migrated under the home's
  /// lock.
  static Result<Home> open(const std::string& path);

  [[nodiscard]] DirFd dir() const { return dir_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// The short lock over names and directory renames.
  [[nodiscard]] Result<UniqueFd> lock() const;

  [[nodiscard]] static std::string sandbox(const std::string& id) { return "sandboxes/" + id; }
  [[nodiscard]] static std::string base(const std::string& key) { return "bases/" + key; }
  [[nodiscard]] Result<UniqueFd> open_sandbox(const std::string& id) const;
  /// Ids of all sandboxes, sorted.
  [[nodiscard]] Result<std::vector<std::string>> sandbox_ids() const;
  /// Names in a directory of the home, without those that start with a dot. Missing directory: empty.
  [[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& directory) const;

  /// A new directory `tmp/<prefix>-<random>` and its lock, which keeps the sweeper away.
  struct Scratch {
    std::string path;
    UniqueFd dir, lock;
  };
  [[nodiscard]] Result<Scratch> make_scratch(std::string_view prefix) const;
  /// Moves `path` (a directory of the home) into tmp/, so that it is gone for everybody at once, and says
  /// where it is now; remove_set_aside() takes its time then. Empty when it was missing.
  [[nodiscard]] Result<std::string> set_aside(const std::string& path) const;
  Status remove_set_aside(const std::string& path) const;
  /// Both. A missing directory is success.
  Status discard(const std::string& path) const;
  /// Removes what nobody works on in tmp/; returns how many directories that were.
  std::uint32_t sweep_scratch() const;

 private:
  Home(UniqueFd dir, std::string path) : dir_(std::move(dir)), path_(std::move(path)) {}
  UniqueFd dir_;
  std::string path_;
};

/// kNotFound for an id or a name.
[[nodiscard]] std::unexpected<Error> no_sandbox(std::string_view id_or_name);
/// Twelve lower-case hexadecimal digits.
[[nodiscard]] bool is_sandbox_id(std::string_view text);

}  // namespace drupe
