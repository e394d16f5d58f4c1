#include "engine/host_trust.h"

#include <map>

#include <gtest/gtest.h>

#include "engine/testing/certificates.h"

namespace drupe {
namespace {

using namespace testing_certificates;

constexpr const char* kDebian = "/etc/ssl/certs/ca-certificates.crt";

struct Host {
  std::map<std::string, std::string> variables, files;

  /// Hashes of what is found, joined by blanks, or "error: ...".
  std::string trusts() const {
    net::PresetSource source;
    source.variable = [this](const std::string& name) { return find(variables, name); };
    source.file = [this](const std::string& path) { return find(files, path); };
    source.directory = [this](const std::string& path) {
      std::vector<std::string> names;
      for (const auto& [file, text] : files)
        if (file.starts_with(path + "/")) names.push_back(file.substr(path.size() + 1));
      return names;
    };
    const auto bundle = host_trust(source);
    if (!bundle) return "error: " + bundle.error().message;
    EXPECT_TRUE(TrustBundle::decode(as_bytes(bundle->encode())));
    std::string text;
    for (const auto& one : bundle->authorities) text += (text.empty() ? "" : " ") + one.subject_hash;
    return text;
  }

 private:
  static std::optional<std::string> find(const std::map<std::string, std::string>& map,
                                         const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  }
};

constexpr const char* kPlainHash = "734a4e5f";
constexpr const char* kUtf8Hash = "27a30b53";
constexpr const char* kMultiHash = "6a228563";

TEST(HostTrust, TheDistributionsBundle) {
  Host host;
  host.files["/etc/pki/tls/certs/ca-bundle.crt"] = kUtf8;
  EXPECT_EQ(host.trusts(), kUtf8Hash);
  host.files[kDebian] = kPlain;  // The first that is there, as Go's clients have it.
  EXPECT_EQ(host.trusts(), kPlainHash);
  host.variables["SSL_CERT_FILE"] = "/opt/ca.pem";
  host.files["/opt/ca.pem"] = kMulti;
  EXPECT_EQ(host.trusts(), kMultiHash);
}

TEST(HostTrust, WhatSingleClientsAreToldToUse) {
  for (const char* name : {"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                           "PIP_CERT", "npm_config_cafile"}) {
    Host host;
    host.files[kDebian] = kPlain;
    host.files["/opt/extra.pem"] = kUtf8;
    host.variables[name] = "/opt/extra.pem";
    EXPECT_EQ(host.trusts(), std::string(kPlainHash) + " " + kUtf8Hash) << name;
    host.variables[name] = "/opt/missing.pem";
    EXPECT_NE(host.trusts().find("/opt/missing.pem"), std::string::npos) << name;
  }
  Host host;
  host.variables["HOME"] = "/home/u";
  host.files["/etc/pip.conf"] = "[global]\ncert = /opt/pip.pem\n";
  host.files["/home/u/.npmrc"] = "cafile=/opt/npm.pem\n";
  host.files["/opt/pip.pem"] = kUtf8;
  host.files["/opt/npm.pem"] = std::string(kMulti) + kUtf8;
  EXPECT_EQ(host.trusts(), std::string(kUtf8Hash) + " " + kMultiHash);
}

TEST(HostTrust, LinksByHashInDirectories) {
  Host host;
  host.variables["SSL_CERT_DIR"] = "/a:/b";
  host.files["/a/734a4e5f.0"] = kPlain;
  host.files["/a/plain.pem"] = kUtf8;
  host.files["/b/6a228563.1"] = kMulti;
  host.files["/b/00000000.0"] = "no certificate";
  EXPECT_EQ(host.trusts(), std::string(kPlainHash) + " " + kMultiHash);
  host.variables["REQUESTS_CA_BUNDLE"] = "/b";
  EXPECT_EQ(host.trusts(), std::string(kPlainHash) + " " + kMultiHash);
}

TEST(HostTrust, MistakesAreTold) {
  Host host;
  EXPECT_NE(host.trusts().find("no store"), std::string::npos);
  host.files[kDebian] = "nothing";
  EXPECT_NE(host.trusts().find("holds no certificate"), std::string::npos);
  host.files[kDebian] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_NE(host.trusts().find(kDebian), std::string::npos);
  host.variables["SSL_CERT_FILE"] = "/opt/gone.pem";
  EXPECT_NE(host.trusts().find("SSL_CERT_FILE names"), std::string::npos);
}

TEST(HostTrust, AKeyBesideACertificateStaysHere) {
  Host host;
  host.files[kDebian] =
      std::string("-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n") + kPlain;
  net::PresetSource source;
  source.variable = [](const std::string&) { return std::nullopt; };
  source.file = [&](const std::string& path) -> std::optional<std::string> {
    return path == kDebian ? std::optional(host.files[kDebian]) : std::nullopt;
  };
  source.directory = [](const std::string&) { return std::vector<std::string>(); };
  const auto bundle = host_trust(source);
  ASSERT_TRUE(bundle);
  EXPECT_EQ(bundle->encode().find("SECRET"), std::string::npos);
}

}  // namespace
}  // namespace drupe
