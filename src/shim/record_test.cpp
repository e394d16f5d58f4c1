#include "shim/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "shim/messages.h"
#include "shim/spec.h"

namespace drupe {
namespace {

using ::testing::HasSubstr;

SandboxRecord full_record() {
  SandboxRecord record;
  record.id = "0123456789ab";
  record.name = "quiet-otter";
  record.labels = {{"team", "blue"}, {"bytes", std::string("\xff\x00z", 3)}};
  record.image_id = "sha256:1";
  record.image_name = "devbox:1";
  record.shape = {2, 1024};
  record.disk_bytes = 8ULL << 30;
  record.cpus = 1.5;
  record.state = SandboxState::kPaused;
  record.cause = EndCause::kHostOom;
  record.cause_text = "a \"quoted\" sentence\n";
  record.main_exit = ExitFacts{};
  record.main_exit->exit_code = 3;
  record.main_exit->timed_out = true;
  record.main_exit->cpu_ns = 18'000'000'000'000'000'000ULL;
  record.main_exit->error = Error{ErrorCode::kNotFound, "no such program", "Install it.", 2};
  record.created_ns = 1;
  record.paused_ns = 1'700'000'000'000'000'000;
  record.image_env = {"A=b", "RAW=\xc0\x80"};
  record.hostname = "otter";
  record.machine_id = "00112233445566778899aabbccddeeff";
  record.stop_signal = "SIGTERM";
  record.main = ExecOptions{};
  record.main->exec_id = "main";
  record.main->argv = {"sh", "-c", "printf '\xf0\x9f\x98\x80'", "\xed\xa0\x80"};
  record.main->stdin_open = true;
  record.main->limits = {{7, 100, ~0ULL}};
  record.detached = true;
  record.idle_timeout_ms = 5;
  record.disk_chain = {"image.ext4", "disk-1.qcow2"};
  record.base_key = "k";
  record.base_ram_file = "ram";
  record.tsc_khz = 2'100'000;
  record.saved = SavedState{"delta-3", "extents-3", "state-3", 0xdeadbeefcafef00dULL, true, "flows-3", true};
  record.next_file = 4;
  record.isolation = "emulated";
  record.confinement = "partial";
  record.confinement_missing = {"user namespaces"};
  record.network.mode = NetworkMode::kPolicy;
  record.network.allow = {{"example.com", ""}, {"192.0.2.1:443", "@pip"}};
  record.network.deny = {{"bad.example.com", ""}};
  record.network.allow_private = {"10.0.0.0/8"};
  record.network.publications = {{"127.0.0.1", 8080, 80}};
  record.network.quota_bytes = 1 << 20;
  record.network.used_bytes = 7;
  return record;
}

TEST(Record, SurvivesItsOwnEncodingByteForByte) {
  const std::string first = encode_record(full_record());
  const auto decoded = decode_record(first);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(encode_record(*decoded), first);
  EXPECT_EQ(decoded->labels.at("bytes"), std::string("\xff\x00z", 3));
  EXPECT_EQ(decoded->main->argv[3], "\xed\xa0\x80");
  EXPECT_EQ(decoded->main->limits[0].hard, ~0ULL);
  EXPECT_EQ(decoded->main_exit->error->code, ErrorCode::kNotFound);
  EXPECT_EQ(decoded->saved->epoch, 0xdeadbeefcafef00dULL);
  EXPECT_EQ(decoded->cause, EndCause::kHostOom);
}

TEST(Record, ARecordFromBeforeThereWereNetworksHasNone) {
  SandboxRecord record = full_record();
  record.network = {};
  std::string old = encode_record(record);
  const auto begin = old.find("\"network\": {");
  ASSERT_NE(begin, std::string::npos);
  old.replace(begin, old.find('}', begin) + 1 - begin, "\"network\": \"none\"");
  for (const char* name : {"\"flows_file\"", "\"link_up\""}) {
    const auto at = old.find(name);
    ASSERT_NE(at, std::string::npos);
    const auto comma = old.rfind(',', at);
    old.erase(comma, old.find_first_of(",}", at) - comma);
  }
  const auto decoded = decode_record(old);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->network, NetworkRecord{});
  EXPECT_EQ(decoded->saved->flows_file, "");
  EXPECT_FALSE(decoded->saved->link_up);
}

TEST(Record, ANetworkIsStrict) {
  EXPECT_EQ(decode_network(encode_network(full_record().network)).value(), full_record().network);
  for (const char* text : {"", "[]", "{}", "null", R"({"mode":"bridge"})",
                           R"({"mode":"open","allow":[1],"deny":[],"allow_private":[],"publications":[],)"
                           R"("quota_bytes":0,"used_bytes":0})",
                           R"({"mode":"open","allow":[],"deny":[],"allow_private":[],)"
                           R"("publications":[{"address":"","host_port":65536,"guest_port":1}],)"
                           R"("quota_bytes":0,"used_bytes":0})"})
    EXPECT_FALSE(decode_network(text)) << text;
}

TEST(Record, OptionalPartsStayAbsent) {
  const auto decoded = decode_record(encode_record(SandboxRecord{}));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_FALSE(decoded->main);
  EXPECT_FALSE(decoded->saved);
  EXPECT_FALSE(decoded->main_exit);
}

TEST(Record, EveryTornFileIsASentence) {
  const std::string whole = encode_record(full_record());
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    const auto decoded = decode_record(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(decoded) << size;
    EXPECT_FALSE(decoded.error().message.empty());
  }
}

TEST(Record, ForeignShapesAreRefused) {
  for (const char* text : {"", "[]", "null", "42", "{}", "{\"version\": \"1\"}", "{\"version\": 1}"})
    EXPECT_FALSE(decode_record(text)) << text;
  EXPECT_FALSE(decode_record(std::string(100'000, '[')));
  std::string newer = encode_record(full_record());
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 9");
  EXPECT_THAT(decode_record(newer).error().message, HasSubstr("version 9"));
}

TEST(Record, AFileNameCannotLeaveTheDirectory) {
  for (const char* name : {"../other/ram", "a/b", "..", ".", "/etc/passwd", "a\nb"}) {
    SandboxRecord record = full_record();
    record.disk_chain[0] = name;
    EXPECT_FALSE(decode_record(encode_record(record))) << name;
    record = full_record();
    record.saved->delta_file = name;
    EXPECT_FALSE(decode_record(encode_record(record))) << name;
  }
}

TEST(Record, IsReplacedInItsDirectory) {
  char path[] = "/tmp/drupe-record-XXXXXX";
  ASSERT_NE(::mkdtemp(path), nullptr);
  const auto dir = open_at(AT_FDCWD, path, O_DIRECTORY | O_RDONLY);
  ASSERT_TRUE(dir);
  SandboxRecord record = full_record();
  ASSERT_TRUE(write_record(dir->get(), record));
  record.name = "other";
  ASSERT_TRUE(write_record(dir->get(), record, Sync::kYes));
  struct stat info{};
  ASSERT_EQ(::fstatat(dir->get(), kRecordFile, &info, 0), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);  // it may hold secrets of the environment
  const auto back = read_record(dir->get());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->name, "other");
  ASSERT_TRUE(remove_tree(AT_FDCWD, path));
}

TEST(Extents, AreCheckedOnceWhenRead) {
  const std::vector<MemoryExtent> good{{0, 0, 4096}, {8192, 4096, 8192}};
  const auto decoded = decode_extents(encode_extents(good), 1 << 20);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->size(), 2U);
  EXPECT_EQ((*decoded)[1].length, 8192U);
  const std::vector<std::vector<MemoryExtent>> bad{{{0, 0, 4095}},
                                                   {{1, 0, 4096}},
                                                   {{0, 0, 8192}, {4096, 8192, 4096}},
                                                   {{8192, 0, 4096}, {0, 4096, 4096}},
                                                   {{0, 0, 0}},
                                                   {{1 << 20, 0, 4096}},
                                                   {{0, ~0ULL - 4095, 4096}},
                                                   {{4096, 0, ~0ULL - 4095}}};
  for (const auto& extents : bad) EXPECT_FALSE(decode_extents(encode_extents(extents), 1 << 20));
  EXPECT_FALSE(decode_extents(encode_extents(good).substr(1), 1 << 20));
  EXPECT_FALSE(decode_extents(std::string(8, '\xff'), 1 << 20));
}

TEST(Spec, RoundTripAndForeignBytes) {
  ShimSpec spec;
  spec.mode = LaunchMode::kForkChild;
  spec.owner_bound = true;
  spec.owner_pid = 77;
  spec.tsc_khz = 5;
  spec.qemu_path = "/usr/bin/q";
  spec.exercise = {"true", "python3 -c pass"};
  const auto decoded = ShimSpec::decode(spec.encode());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->encode(), spec.encode());
  EXPECT_EQ(decoded->mode, LaunchMode::kForkChild);
  EXPECT_FALSE(ShimSpec::decode(spec.encode() + "x"));
  EXPECT_FALSE(ShimSpec::decode(""));

  ShimStatus status;
  status.error = Error{ErrorCode::kTimeout, "slow", "Wait.", 110};
  status.timings = {{"hypervisor", 1.5}, {"agent", 20}};
  status.notes = {"One thing."};
  const auto back = ShimStatus::decode(status.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->error->code, ErrorCode::kTimeout);
  EXPECT_DOUBLE_EQ(back->timings[0].second, 1.5);
  EXPECT_EQ(back->notes, status.notes);
  EXPECT_FALSE(ShimStatus::decode("").has_value());
}

TEST(ShimMessages, RoundTrips) {
  UpdateRequest update;
  update.labels.emplace()["a"] = "b";
  update.idle_timeout_ms = 0;
  const auto decoded = UpdateRequest::decode(as_bytes(update.encode()));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->labels, update.labels);
  EXPECT_EQ(decoded->idle_timeout_ms, 0U);
  EXPECT_FALSE(decoded->name);
  SnapshotReply reply;
  reply.saved.delta_file = "delta-1";
  reply.disk_chain = {"a", "b"};
  reply.stopped_ms = 12.25;
  reply.saved.flows_file = "flows-1";
  reply.saved.link_up = true;
  const auto back = SnapshotReply::decode(as_bytes(reply.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->disk_chain, reply.disk_chain);
  EXPECT_EQ(back->saved.flows_file, "flows-1");
  EXPECT_TRUE(back->saved.link_up);
  NetSetRequest set;
  set.network = full_record().network;
  set.spec.resolvers = {"192.0.2.1"};
  set.spec.policy = std::string("\0p", 2);
  const auto policy = NetSetRequest::decode(as_bytes(set.encode()));
  ASSERT_TRUE(policy);
  EXPECT_EQ(policy->network, set.network);
  EXPECT_EQ(policy->spec.policy, set.spec.policy);
  EXPECT_DOUBLE_EQ(back->stopped_ms, 12.25);
  const Error error = decode_reset(as_bytes(encode_reset(Error{ErrorCode::kVmLost, "gone", {}, 0})));
  EXPECT_EQ(error.code, ErrorCode::kVmLost);
  EXPECT_EQ(decode_reset({}).code, ErrorCode::kIntegrity);
}

TEST(ShimMessages, ALongRecordStillFitsIntoAFrame) {
  SandboxRecord record = full_record();
  record.main->argv.assign(16, std::string(60'000, 'a'));
  record.main->env.assign(1000, std::string(1000, 'b'));
  record.network.allow.assign(10'000, {"example.com:443", "@pip"});
  record.cause_text = std::string(65536, '\xff');
  const std::string brief = brief_record_json(record);
  EXPECT_LE(brief.size(), kMaxPayload / 2);
  const auto decoded = decode_record(brief);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->main_exit->exit_code, 3);
}

}  // namespace
}  // namespace drupe
