#include "image/dockerfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = BuildAction::Kind;

BuildPlan planned(std::string_view text, const ImageConfig& base = {}) {
  const auto file = parse_dockerfile(text);
  EXPECT_TRUE(file) << to_string(file.error());
  auto plan = plan_build(*file, base);
  EXPECT_TRUE(plan) << to_string(plan.error());
  return *std::move(plan);
}

TEST(Dockerfile, ReadsCommentsContinuationsAndDirectives) {
  const auto file = parse_dockerfile(
      "# syntax=docker/dockerfile:1\n# comment\nARG TAG=12\nFROM --platform=linux/amd64 debian:${TAG} AS "
      "one\r\n"
      "run apt-get update && \\\n  # not this\n\n  apt-get install x \\\n\nENV A=1\n");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->from, "debian:12");
  ASSERT_EQ(file->after.size(), 1U);
  EXPECT_EQ(file->after[0].keyword, "RUN");
  EXPECT_EQ(file->after[0].line, 5);
  EXPECT_EQ(file->after[0].text, "apt-get update &&   apt-get install x ENV A=1");
}

TEST(Dockerfile, AnotherEscape) {
  const auto file = parse_dockerfile("# escape=`\nFROM a\nRUN b `\nc\\");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->after.at(0).text, "b c\\");
}

TEST(Dockerfile, WhatIsNotSupportedIsNamedByItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no FROM"},
      {"RUN x", "line 1: RUN stands before FROM"},
      {"FROM a\nFROM b", "line 2: there is a second FROM"},
      {"FROM a b", "line 1: FROM needs"},
      {"FROM scratch", "line 1: FROM scratch"},
      {"FROM $NOTHING", "line 1: FROM needs"},
      {"FROM --platform=linux/arm64 a", "linux/amd64"},
      {"FROM a\n\nCOPY x y", "line 3: COPY is not supported: a build has no context"},
      {"FROM a\nADD https://x.example/y /y", "line 2: ADD is not supported"},
      {"FROM a\nRUN --mount=type=cache,target=/x y", "line 2: options of RUN"},
      {"FROM a\nVOLUME /x", "line 2: VOLUME is not supported"},
      {"FROM a\nONBUILD RUN x", "line 2: ONBUILD"},
      {"FROM a\nHEALTHCHECK CMD x", "line 2: HEALTHCHECK"},
      {"FROM a\nMAKE x", "line 2: 'MAKE' is no instruction"},
      {"FROM a\nRUN", "line 2: RUN says nothing"},
      {"FROM a\nRUN <<EOF\nx", "line 2: the heredoc EOF does not end"},
  };
  for (const auto& [text, what] : cases) {
    const auto file = parse_dockerfile(text);
    ASSERT_FALSE(file) << text;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(file.error().message, HasSubstr(what)) << text;
  }
  EXPECT_FALSE(parse_dockerfile("FROM a\n" + std::string(kMostDockerfile, '#')));
  EXPECT_FALSE(parse_dockerfile(std::string_view("FROM a\0", 7)));
}

TEST(Dockerfile, PlansWhatIsToDo) {
  ImageConfig base;
  base.env = {"PATH=/bin", "LANG=C"};
  base.cmd = {"bash"};
  base.working_dir = "/root";
  const BuildPlan plan = planned(
      "FROM a\nARG V=1.2\nENV A=x B=\"y $LANG\" PATH=/opt:$PATH\nENV C say ${V} ${NONE:-nothing}\nWORKDIR "
      "/srv\n"
      "WORKDIR sub\nUSER nobody\nRUN echo $A\nRUN [\"/bin/echo\", \"$A\"]\nLABEL a=b \"c d\"='e f'\nEXPOSE "
      "80\n"
      "ENTRYPOINT [\"/run.sh\"]\nSTOPSIGNAL INT\n",
      base);
  EXPECT_THAT(plan.config.env, ElementsAre("PATH=/opt:/bin", "LANG=C", "A=x", "B=y C", "C=say 1.2 nothing"));
  EXPECT_EQ(plan.config.working_dir, "/srv/sub");
  EXPECT_EQ(plan.config.user, "nobody");
  EXPECT_EQ(plan.config.stop_signal, "INT");
  EXPECT_THAT(plan.config.entrypoint, ElementsAre("/run.sh"));
  EXPECT_TRUE(plan.config.cmd.empty()) << "the base image's command is not the new program's argument";
  EXPECT_EQ(plan.config.labels.at("c d"), "e f");
  ASSERT_EQ(plan.actions.size(), 4U);
  EXPECT_EQ(plan.actions[0].kind, Kind::kMakeDirectory);
  EXPECT_EQ(plan.actions[1].path, "/srv/sub");
  EXPECT_THAT(plan.actions[2].argv, ElementsAre("/bin/sh", "-c", "echo $A"));
  EXPECT_EQ(plan.actions[2].user, "nobody");
  EXPECT_EQ(plan.actions[2].cwd, "/srv/sub");
  EXPECT_THAT(plan.actions[2].env, Contains("V=1.2"));
  EXPECT_THAT(plan.actions[3].argv, ElementsAre("/bin/echo", "$A"));
}

TEST(Dockerfile, EnvWinsOverArgAndArgsBeforeFromAreTakenByName) {
  const BuildPlan plan =
      planned("ARG V=1\nARG W=2\nFROM a\nARG V\nENV E=$V$W\nARG E=other\nRUN x\nENV F=$E\n");
  EXPECT_THAT(plan.config.env, ElementsAre("E=1", "F=1"));
  EXPECT_THAT(plan.actions.at(0).env, ElementsAre("E=1", "V=1"));
}

TEST(Dockerfile, Heredocs) {
  const BuildPlan plan = planned(
      "FROM a\nENV N=name\nRUN <<EOF\necho one\necho two\nEOF\nRUN cat <<-A >/x && cat <<B\n\tin a\n\tA\nin "
      "b\nB\n"
      "RUN <<X\n#!/usr/bin/python3\nprint(1)\nX\nCOPY --chmod=600 --chown=1:2 <<EOF /etc/f\n$N \"quoted\" "
      "\\$N\nEOF\n"
      "COPY <<'one' <<two /d/\n$N\none\n$N\ntwo\n");
  ASSERT_EQ(plan.actions.size(), 8U);
  EXPECT_EQ(plan.actions[0].argv.back(), "echo one\necho two\n");
  EXPECT_EQ(plan.actions[1].argv.back(), "cat <<-A >/x && cat <<B\nin a\nA\nin b\nB\n");
  EXPECT_EQ(plan.actions[2].kind, Kind::kWriteFile);
  EXPECT_EQ(plan.actions[2].mode, 0755U);
  EXPECT_THAT(plan.actions[3].argv, ElementsAre(plan.actions[2].path));
  EXPECT_EQ(plan.actions[4].argv.front(), "rm");
  EXPECT_EQ(plan.actions[5].path, "/etc/f");
  EXPECT_EQ(plan.actions[5].content, "name \"quoted\" $N\n");
  EXPECT_EQ(plan.actions[5].mode, 0600U);
  EXPECT_EQ(plan.actions[5].owner, "1:2");
  EXPECT_EQ(plan.actions[6].path, "/d/one");
  EXPECT_EQ(plan.actions[6].content, "$N\n");
  EXPECT_EQ(plan.actions[7].content, "name\n");
}

TEST(Dockerfile, VariablesDoNotGrowWithoutBound) {
  std::string text = "FROM a\nENV A=0123456789\n";
  for (int i = 0; i < 40; ++i) text += "ENV A=$A$A\n";
  const auto file = parse_dockerfile(text);
  ASSERT_TRUE(file);
  EXPECT_FALSE(plan_build(*file, {}));
  for (const char* line :
       {"ENV", "ENV A", "ENV 1=2", "ENV A=\"x", "ENV A=${B:?x}", "ENV A=${", "LABEL x", "USER a b", "SHELL x",
        "COPY <<E\nE", "COPY x <<E /y\nE", "COPY --from=a <<E /y\nE", "RUN []"}) {
    const auto other = parse_dockerfile("FROM a\n" + std::string(line));
    if (!other) continue;
    const auto plan = plan_build(*other, {});
    ASSERT_FALSE(plan) << line;
    EXPECT_THAT(plan.error().message, HasSubstr("line 2")) << line;
  }
}

}  // namespace
}  // namespace drupe
