// Dockerfiles of builds without a context: one stage, nothing copied from outside. Reading them, and what a
// build has to do. Hostile input: bounded, and whatever is not supported is refused with its line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/config.h"

namespace drupe {

inline constexpr std::size_t kMostDockerfile = 64 * 1024;

struct Heredoc {
  std::string name;
  bool expand = true;  ///< The name was not quoted: variables are replaced where Docker does it (COPY).
  std::string body;
};

/// One instruction, continued lines joined, comments gone.
struct Instruction {
  int line = 0;         ///< Where it begins, from 1.
  std::string keyword;  ///< "RUN"
  std::string text;     ///< What follows; trimmed.
  std::vector<Heredoc> heredocs;
};

struct Dockerfile {
  std::string from;                        ///< Name of the base image, variables replaced.
  std::vector<Instruction> before, after;  ///< ARGs before FROM; everything after it.
  char escape = '\\';
};

/// kInvalidArgument, "line 3: ...", for what is no Dockerfile and for every instruction that is not
/// supported.
Result<Dockerfile> parse_dockerfile(std::string_view text);

/// One thing that a build does in the guest.
struct BuildAction {
  enum class Kind : std::uint8_t { kRun, kMakeDirectory, kWriteFile };
  Kind kind = Kind::kRun;
  int line = 0;
  std::string shown;                   ///< For the log: "RUN apt-get update".
  std::vector<std::string> argv, env;  ///< kRun; env is over the base image's.
  std::string cwd, user;               ///< kRun; absolute; empty: root.
  std::string path;                    ///< The others: absolute.
  std::string content;                 ///< kWriteFile
  std::uint32_t mode = 0644;           ///< kWriteFile
  std::string owner;                   ///< kWriteFile: "uid:gid" in digits, or empty: root.
};

struct BuildPlan {
  std::vector<BuildAction> actions;
  ImageConfig config;  ///< Of the image that is made.
};

/// What the instructions mean over an image that is run as `base` says. kInvalidArgument with the line.
Result<BuildPlan> plan_build(const Dockerfile& file, const ImageConfig& base);

}  // namespace drupe
