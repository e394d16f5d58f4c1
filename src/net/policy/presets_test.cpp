#include "net/policy/presets.h"

#include <map>

#include <gtest/gtest.h>

#include "net/policy/preset_clients.h"

namespace drupe::net {
namespace {

struct Host {
  std::map<std::string, std::string> variables, files;

  PresetSource source() const {
    PresetSource out;
    out.variable = [this](const std::string& name) { return find(variables, name); };
    out.file = [this](const std::string& path) { return find(files, path); };
    out.directory = [this](const std::string& path) {
      std::vector<std::string> names;
      for (const auto& [file, text] : files)
        if (file.starts_with(path + "/"))
          names.push_back(file.substr(path.size() + 1, file.find('/', path.size() + 1) - path.size() - 1));
      return names;
    };
    return out;
  }

 private:
  static std::optional<std::string> find(const std::map<std::string, std::string>& map,
                                         const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  }
};

/// Rules joined by blanks, or "error: ...".
std::string expanded(const Host& host, const std::vector<std::string>& rules) {
  const auto out = expand_presets(rules, host.source());
  if (!out) return "error: " + out.error().message;
  std::string text;
  for (const RuleText& rule : *out) text += (text.empty() ? "" : " ") + rule.text;
  return text;
}

TEST(Presets, ServersOfUrls) {
  const struct {
    const char* url;
    const char* server;
  } table[] = {
      {"https://pypi.example/simple", "pypi.example:443"},
      {"HTTP://Mirror.Example:8080", "mirror.example:8080"},
      {"https://user:pa:ss@mirror.example/x", "mirror.example:443"},
      {"https://user:p@ss@mirror.example:8443?x#y", "mirror.example:8443"},
      {"http://192.0.2.1/x", "192.0.2.1:80"},
      {"http://[2001:db8::1]:81/x", "[2001:db8::1]:81"},
      {"http://[2001:db8::1]/x", "[2001:db8::1]:80"},
      {"https://mirror.example:/x", "mirror.example:443"},
      {"file:///srv/x", ""},
      {"git+ssh://git.example/x", ""},
      {"https://*/x", ""},
      {"https:///x", ""},
      {"https://a b/x", ""},
      {"mirror.example", ""},
      {"https://mirror.example:x/", ""},
  };
  for (const auto& line : table) EXPECT_EQ(server_of_url(line.url).value_or(""), line.server) << line.url;
}

TEST(Presets, OtherRulesStayAsTheyAre) {
  EXPECT_EQ(expanded({}, {"a.example", "b ad"}), "a.example b ad");
  EXPECT_EQ(expanded({}, {"@conda"}), "error: There is no preset '@conda'");
  EXPECT_EQ(expanded({}, {"@"}), "error: There is no preset '@'");
}

TEST(Presets, WhatInstalledClientsUseUnconfiguredIsSaidToBeTheirDefault) {
  Host host;
  host.files["/usr/lib/python3/dist-packages/pip/_internal/models/index.py"] =
      "class PackageIndex:\n    pass\n\n\nPyPI = PackageIndex(\n    \"https://index.example/\", "
      "file_storage_domain=\"files.example\"\n)\nTestPyPI = PackageIndex(\"https://test.example/\")\n";
  host.files["/usr/share/nodejs/npm/lib/utils/config/definitions.js"] =
      "define('https-proxy', {\n  default: null,\n})\ndefine('registry', {\n  default: "
      "`https://npm.example/`,\n})\n";
  EXPECT_EQ(expanded(host, {"@pip", "@npm"}), "index.example:443 files.example:443 npm.example:443");
  const auto rules = expand_presets({"@pip", "@npm"}, host.source());
  ASSERT_TRUE(rules);
  for (const RuleText& rule : *rules) EXPECT_NE(rule.origin.find("default"), std::string::npos) << rule.text;
  // The newer form of npm's file, in the place where node's own packages have it.
  host.files["/usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js"] =
      "  registry: new Definition('registry', {\n    default: 'https://newer.example/',\n";
  EXPECT_EQ(expanded(host, {"@npm"}), "newer.example:443");
}

TEST(Presets, NothingIsBuiltIn) {
  for (const char* preset : {"@pip", "@npm", "@apt"}) {
    const auto none = expand_presets({preset}, Host{}.source());
    ASSERT_FALSE(none) << preset;
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  }
  Host damaged;
  damaged.files["/usr/lib/python3/dist-packages/pip/_internal/models/index.py"] =
      "\nPyPI = PackageIndex(\"https:";
  damaged.files["/usr/share/nodejs/npm/lib/utils/config/definitions.js"] = "'registry', { default: 'x";
  EXPECT_FALSE(expand_presets({"@pip"}, damaged.source()));
  EXPECT_FALSE(expand_presets({"@npm"}, damaged.source()));
}

TEST(Presets, PipReadsItsFilesAndEnvironment) {
  Host host;
  host.variables["HOME"] = "/home/u";
  host.files["/etc/pip.conf"] =
      "[global]\nindex-url = https://global.example/simple\n; comment\nextra-index-url =\n"
      "    https://extra1.example/simple\n    http://extra2.example:8080/simple\n";
  EXPECT_EQ(expanded(host, {"@pip"}), "global.example:443 extra1.example:443 extra2.example:8080");
  host.files["/home/u/.config/pip/pip.conf"] =
      "[install]\r\nindex_url: https://me:secret@user.example/simple\r\n";
  EXPECT_EQ(expanded(host, {"@pip"}), "user.example:443 extra1.example:443 extra2.example:8080");
  host.variables["PIP_INDEX_URL"] = "http://env.example:3141/root";
  EXPECT_TRUE(expanded(host, {"@pip"}).starts_with("env.example:3141 extra1.example:443"));
  host.variables["PIP_CONFIG_FILE"] = "/dev/null";
  EXPECT_EQ(expanded(host, {"@pip"}), "env.example:3141");
  const auto rules = expand_presets({"@pip"}, host.source());
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->front().origin, "@pip");
}

TEST(Presets, PipsOwnIndexKeepsItsFilesElsewhere) {
  Host host;
  host.files["/usr/local/lib/python3.12/site-packages/pip/_internal/models/index.py"] =
      "\nPyPI = PackageIndex(\"https://index.example/\", file_storage_domain=\"files.example\")\n";
  host.variables["PIP_EXTRA_INDEX_URL"] = "https://extra.example/simple";
  EXPECT_EQ(expanded(host, {"@pip"}), "index.example:443 extra.example:443 files.example:443");
  host.variables["PIP_INDEX_URL"] = "https://mirror.example/simple";
  EXPECT_EQ(expanded(host, {"@pip"}), "mirror.example:443 extra.example:443");
}

TEST(Presets, NpmReadsItsFilesAndEnvironment) {
  Host host;
  host.variables["HOME"] = "/home/u";
  host.variables["MIRROR"] = "npm.example";
  host.files["/etc/npmrc"] = "registry = http://global.example/\n";
  EXPECT_EQ(expanded(host, {"@npm"}), "global.example:80");
  host.files["/home/u/.npmrc"] =
      "; mine\n//npm.example/:_authToken=secret\nregistry=\"https://${MIRROR}:8443/\"\n"
      "@team:registry=https://team.example/\n";
  EXPECT_EQ(expanded(host, {"@npm"}), "npm.example:8443 team.example:443");
  host.variables["NPM_CONFIG_REGISTRY"] = "https://env.example/";
  EXPECT_EQ(expanded(host, {"@npm"}), "env.example:443 team.example:443");
}

TEST(Presets, AptReadsBothFormats) {
  Host host;
  host.files["/etc/apt/sources.list"] =
      "# deb http://commented.example/debian x main\n"
      "deb [arch=amd64 signed-by=/usr/share/k.gpg] http://one.example/debian bookworm main # note\n"
      "deb-src https://two.example/debian bookworm main\n"
      "deb cdrom:[Debian]/ bookworm main\n"
      "deb file:/srv/repo ./\n"
      "debian http://typo.example x\n";
  host.files["/etc/apt/sources.list.d/a.list"] = "deb mirror+https://three.example/list bookworm main\n";
  host.files["/etc/apt/sources.list.d/b.sources"] =
      "Types: deb\nURIs: http://four.example/debian\n  https://five.example:8443/debian\nSuites: x\n\n"
      "# other\nTypes: deb\nEnabled: no\nURIs: http://off.example/debian\n\n"
      "Types: deb\nURIs: tor+http://six.example/debian\n";
  host.files["/etc/apt/sources.list.d/c.save"] = "deb http://saved.example/ x main\n";
  EXPECT_EQ(
      expanded(host, {"@apt"}),
      "one.example:80 two.example:443 three.example:443 four.example:80 five.example:8443 six.example:80");
}

TEST(Presets, EqualServersAreNamedOnce) {
  Host host;
  host.files["/etc/apt/sources.list"] =
      "deb http://one.example/debian a main\ndeb http://one.example/security a main\n";
  EXPECT_EQ(expanded(host, {"x.example", "@apt"}), "x.example one.example:80");
}

TEST(Presets, ThisHostCanBeRead) {
  for (const char* preset : {"@pip", "@npm", "@apt"}) {
    const auto rules = expand_presets({preset}, host_preset_source());
    if (!rules) {  // not installed here, and not configured
      EXPECT_EQ(rules.error().code, ErrorCode::kNotFound) << rules.error().message;
      continue;
    }
    EXPECT_FALSE(rules->empty()) << preset;
    EXPECT_TRUE(RuleSet::compile(*rules)) << preset;
  }
}

}  // namespace
}  // namespace drupe::net
