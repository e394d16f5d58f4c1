#include "image/reference.h"

#include <gtest/gtest.h>

namespace drupe {
namespace {

const std::string kHex(64, 'a');

std::string canonical(std::string_view text) {
  const auto reference = parse_reference(text);
  return reference ? reference->canonical() : "error: " + reference.error().message;
}

TEST(Reference, GetsDockersDefaults) {
  EXPECT_EQ(canonical("python"), "docker.io/library/python:latest");
  EXPECT_EQ(canonical("python:3.12-slim"), "docker.io/library/python:3.12-slim");
  EXPECT_EQ(canonical("team/app"), "docker.io/team/app:latest");
  EXPECT_EQ(canonical("docker.io/python"), "docker.io/library/python:latest");
  EXPECT_EQ(canonical("index.docker.io/library/python"), "docker.io/library/python:latest");
}

TEST(Reference, KnowsHosts) {
  EXPECT_EQ(canonical("localhost/app"), "localhost/app:latest");
  EXPECT_EQ(canonical("registry.example.com/app:1"), "registry.example.com/app:1");
  EXPECT_EQ(canonical("Registry.Example.com:5000/team/app"), "registry.example.com:5000/team/app:latest");
  EXPECT_EQ(canonical("[::1]:5000/app"), "[::1]:5000/app:latest");
  EXPECT_EQ(canonical("127.0.0.1:5000/a_b/c__d/e-f/g--h"), "127.0.0.1:5000/a_b/c__d/e-f/g--h:latest");
}

TEST(Reference, DigestsWinOverTags) {
  const auto reference = parse_reference("host.example:1/app:tag@sha256:" + kHex);
  ASSERT_TRUE(reference);
  EXPECT_EQ(reference->tag, "tag");
  EXPECT_EQ(reference->selector(), "sha256:" + kHex);
  EXPECT_EQ(reference->canonical(), "host.example:1/app@sha256:" + kHex);
}

TEST(Reference, FamiliarFormMeansTheSame) {
  for (const char* text : {"python:3", "team/app:1", "localhost/app:1", "host.example:1/library/app:1"}) {
    const auto reference = parse_reference(text);
    ASSERT_TRUE(reference) << text;
    EXPECT_EQ(reference->familiar(), text);
  }
  EXPECT_EQ(parse_reference("docker.io/library/a/b:1")->familiar(), "library/a/b:1");
}

TEST(Reference, RefusesWithASentence) {
  for (const std::string text : {"",           "/",
                                 "a//b",       "/a",
                                 "a/",         "../x",
                                 "a/../b",     "a/.",
                                 ".a",         "a.",
                                 "-a",         "a-",
                                 "a..b",       "a___b",
                                 "A/b",        "a:",
                                 "a:-x",       "a:x/y",
                                 "a b",        "a\nb",
                                 "http://a/b", "a@sha256:1",
                                 "a@md5:1",    "a@sha256:../../x",
                                 "host:0/a",   "host:99999/a",
                                 "host:x/a",   "[::1/a",
                                 "ho_st.x/a",  "a%2f",
                                 "a\\b",       "a+b",
                                 "@sha256:x"}) {
    const auto reference = parse_reference(text);
    EXPECT_FALSE(reference) << text;
    if (reference) continue;
    EXPECT_EQ(reference.error().code, ErrorCode::kInvalidArgument);
    EXPECT_LT(to_string(reference.error()).size(), 600U);
  }
  EXPECT_FALSE(parse_reference(kHex));
  EXPECT_FALSE(parse_reference(std::string(65536, 'a')));
  EXPECT_FALSE(parse_reference("a:" + std::string(129, 't')));
  EXPECT_FALSE(parse_reference(std::string("a\0b", 3)));
}

TEST(Reference, CanonicalFormsParseToThemselves) {
  for (const char* text : {"python", "a/b/c:1", "localhost:1/x", "[fe80::1]/x:y"})
    EXPECT_EQ(canonical(canonical(text)), canonical(text));
}

}  // namespace
}  // namespace drupe
