// What `drupe doctor` tells: facts about this machine, each problem with the command that mends it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drupe {

enum class DoctorLevel : std::uint8_t {
  kOk,
  kNote,     ///< Worth knowing; nothing is worse for it.
  kWarning,  ///< Something works less well, or is less locked down, than it could be.
  kProblem,  ///< No sandbox can run until it is mended.
};
[[nodiscard]] std::string_view to_string(DoctorLevel level);

struct DoctorItem {
  std::string topic;  ///< Stable word for JSON: "hypervisor", "kvm", "kernel", "memory", ...
  DoctorLevel level = DoctorLevel::kOk;
  std::string text;  ///< A sentence.
  std::string mend;  ///< Command that mends it; empty when there is none or nothing to mend.
};

/// "full", "partial" or "weak", by how much is missing.
[[nodiscard]] std::string confinement_word(const std::vector<std::string>& missing);

struct DoctorReport {
  bool can_run = false;     ///< True when no item is a kProblem.
  std::string hypervisor;   ///< "qemu 7.2.22"; empty when there is none.
  std::string accelerator;  ///< "kvm" | "tcg"
  std::string isolation;    ///< "hardware-virtualized" | "emulated"
  std::string confinement;  ///< "full" | "partial" | "weak"
  std::vector<std::string> confinement_missing;
  std::vector<DoctorItem> items;
};

}  // namespace drupe
