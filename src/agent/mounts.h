// File systems on block devices in the user's mount namespace, the root excluded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/work.h"

namespace drupe::agent {

/// Keeps the list of the writable ones, for a child that lives in the user's namespaces.
class DiskMounts {
 public:
  /// Opens the table and enters the user's namespaces: not for the agent itself.
  static Result<DiskMounts> enter(const Work& work);

  /// One descriptor for each, the most recently mounted first. What the guest arranged so that it cannot be
  /// opened is left out. The table is read again only after a change of it.
  std::vector<UniqueFd> open_all();
  [[nodiscard]] int table() const { return table_.get(); }

 private:
  struct Mount {
    dev_t device;
    std::string path;
  };
  static bool parse(std::string_view line, Mount& mount);
  void read_table();

  UniqueFd table_;
  dev_t root_ = 0;
  std::vector<Mount> mounts_;
};

}  // namespace drupe::agent
