#include "protocol/messages.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace drupe {
namespace {

// Every proper prefix of a message, and the message with a byte more, is refused.
template <class M>
void expect_exact(const std::string& encoded) {
  ASSERT_TRUE(M::decode(as_bytes(encoded)));
  for (std::size_t size = 0; size < encoded.size(); ++size)
    EXPECT_FALSE(M::decode(as_bytes(std::string_view(encoded).substr(0, size)))) << size;
  EXPECT_FALSE(M::decode(as_bytes(encoded + "x")));
}

OpenRequest sample_exec() {
  OpenRequest open;
  open.kind = OpenKind::kExec;
  open.exec.exec_id = "main";
  open.exec.argv = {"sh", "-c", std::string("\xff\xfe echo", 7)};
  open.exec.env = {"A=1", "B="};
  open.exec.cwd = "/tmp";
  open.exec.user = "1000:1000";
  open.exec.tty = true;
  open.exec.rows = 50;
  open.exec.columns = 132;
  open.exec.stdin_open = true;
  open.exec.keep_on_reset = true;
  open.exec.timeout_ms = 1234567890123;
  open.exec.limits = {{7, 1024, 4096}};
  return open;
}

TEST(Messages, ControlMessagesAreExact) {
  expect_exact<HelloReply>(HelloReply{1, "0.1", "6.1", "id"}.encode());
  SetUpRequest set_up;
  set_up.entropy = std::string(32, 'e');
  set_up.hostname = "box";
  set_up.machine_id = std::string(32, 'a');
  set_up.mac = "123456";
  set_up.default_env = {"A=1"};
  expect_exact<SetUpRequest>(set_up.encode());
  expect_exact<FreezeRequest>(FreezeRequest{1, 2}.encode());
  expect_exact<GuestStats>(GuestStats{}.encode());
  expect_exact<SignalExecRequest>(SignalExecRequest{"main", 9, true}.encode());
  expect_exact<ShutdownRequest>(ShutdownRequest{}.encode());
  expect_exact<SetHostRequest>(SetHostRequest{"a", "b"}.encode());
  SetNetworkRequest network;
  network.up = true;
  network.mac = "123456";
  network.v4 = "192.0.2.2";
  network.v4_prefix = 24;
  network.v6 = "2001:db8::2";
  network.v6_prefix = 64;
  network.resolv_conf = "nameserver 192.0.2.1\n";
  expect_exact<SetNetworkRequest>(network.encode());
  ProcessList list;
  list.processes = {GuestProcess{1, 0, 5, 'S', 10, 20, "init", "main"}};
  expect_exact<ProcessList>(list.encode());
  expect_exact<OpenedReply>(OpenedReply{5}.encode());
}

TEST(Messages, SetUpIsBounded) {
  SetUpRequest set_up;
  set_up.entropy = std::string(31, 'e');
  set_up.hostname = "box";
  set_up.machine_id = std::string(32, 'a');
  EXPECT_FALSE(SetUpRequest::decode(as_bytes(set_up.encode())));
  set_up.entropy = std::string(256, 'e');
  EXPECT_TRUE(SetUpRequest::decode(as_bytes(set_up.encode())));
  set_up.hostname = std::string(65, 'h');
  EXPECT_FALSE(SetUpRequest::decode(as_bytes(set_up.encode())));
}

TEST(Messages, ANetworkIsBounded) {
  const auto refused = [](auto change) {
    SetNetworkRequest request;
    change(request);
    return !SetNetworkRequest::decode(as_bytes(request.encode()));
  };
  EXPECT_FALSE(refused([](SetNetworkRequest&) {}));
  EXPECT_TRUE(refused([](SetNetworkRequest& m) { m.mac = "12345"; }));
  EXPECT_TRUE(refused([](SetNetworkRequest& m) { m.mtu = 575; }));
  EXPECT_TRUE(refused([](SetNetworkRequest& m) { m.mtu = 65536; }));
  EXPECT_TRUE(refused([](SetNetworkRequest& m) { m.v4_prefix = 33; }));
  EXPECT_TRUE(refused([](SetNetworkRequest& m) { m.v6_prefix = 129; }));
}

TEST(Messages, OpenRequestsAreExact) {
  expect_exact<OpenRequest>(sample_exec().encode());
  OpenRequest file;
  file.kind = OpenKind::kWalk;
  file.file.path = "/work dir";
  file.file.ignore = {"*.o"};
  expect_exact<OpenRequest>(file.encode());
}

TEST(Messages, OpenKeepsEveryField) {
  const auto open = OpenRequest::decode(as_bytes(sample_exec().encode()));
  ASSERT_TRUE(open);
  EXPECT_EQ(open->exec.argv, sample_exec().exec.argv);
  EXPECT_EQ(open->exec.env, sample_exec().exec.env);
  EXPECT_EQ(open->exec.timeout_ms, 1234567890123U);
  ASSERT_EQ(open->exec.limits.size(), 1U);
  EXPECT_EQ(open->exec.limits[0].hard, 4096U);
  EXPECT_EQ(open->encode(), sample_exec().encode());
}

TEST(Messages, OpenRefusesBadIdsAndNulBytes) {
  for (const std::string& id : {std::string(), std::string(65, 'a'), std::string("a/b"), std::string("a b"),
                                std::string("a\0b", 3)}) {
    OpenRequest open = sample_exec();
    open.exec.exec_id = id;
    EXPECT_FALSE(OpenRequest::decode(as_bytes(open.encode()))) << id;
  }
  OpenRequest open = sample_exec();
  open.exec.argv.emplace_back("a\0b", 3);
  EXPECT_FALSE(OpenRequest::decode(as_bytes(open.encode())));
  OpenRequest file;
  file.kind = OpenKind::kStat;
  file.file.path = std::string("/etc\0/x", 7);
  EXPECT_FALSE(OpenRequest::decode(as_bytes(file.encode())));
}

TEST(Messages, HostileCountsEndQuickly) {
  std::string bytes(1, '\x01');
  bytes += ByteWriter().text("main").number(std::uint32_t{0xffffffff}).take();
  EXPECT_FALSE(OpenRequest::decode(as_bytes(bytes)));
}

TEST(Messages, RepliesCarryABodyOrAnError) {
  EXPECT_EQ(*decode_reply(as_bytes(encode_reply("body"))), "body");
  EXPECT_EQ(*decode_reply(as_bytes(encode_reply(""))), "");
  const Error error{ErrorCode::kTimeout, "Too slow", "Wait longer", 110};
  const auto reply = decode_reply(as_bytes(encode_error_reply(error)));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(reply.error().message, "Too slow");
  EXPECT_EQ(reply.error().next_step, "Wait longer");
  EXPECT_EQ(reply.error().sys_errno, 110);
  EXPECT_FALSE(decode_reply(as_bytes("")));
  EXPECT_FALSE(decode_reply(as_bytes("\x02")));
  EXPECT_FALSE(decode_reply(as_bytes("\x01\x01")));
}

TEST(Messages, ExitFactsKeepAnError) {
  ExitFacts facts;
  facts.exit_code = 127;
  facts.error = Error{ErrorCode::kNotFound, "no such program", "", 2};
  facts.result = "r";
  expect_exact<ExitFacts>(facts.encode());
  const auto back = ExitFacts::decode(as_bytes(facts.encode()));
  ASSERT_TRUE(back->error);
  EXPECT_EQ(back->error->sys_errno, 2);
  EXPECT_EQ(back->result, "r");
}

TEST(LargeOpens, AreCutIntoFramesAndPutTogether) {
  OpenRequest open = sample_exec();
  for (int i = 0; i < 16; ++i) open.exec.argv.push_back(std::string(65000, static_cast<char>('a' + i)));
  const std::string encoded = open.encode();
  std::string bytes;
  append_open_frames(bytes, 9, encoded);
  FrameParser parser;
  std::vector<OpenAssembler> assembler;
  int frames = 0;
  ASSERT_TRUE(parser.feed(as_bytes(bytes), [&](const Frame& frame) -> Status {
    ++frames;
    EXPECT_EQ(frame.id, 9U);
    if (frame.type == FrameType::kOpen) {
      DRUPE_ASSIGN(auto begun, OpenAssembler::begin(frame.payload));
      assembler.push_back(std::move(begun));
      return {};
    }
    EXPECT_FALSE(assembler.at(0).complete());
    return assembler.at(0).add(frame.payload);
  }));
  EXPECT_EQ(frames, 16);
  ASSERT_TRUE(assembler.at(0).complete());
  EXPECT_EQ(assembler.at(0).decode()->encode(), encoded);
}

TEST(LargeOpens, AreBounded) {
  EXPECT_FALSE(OpenAssembler::begin(as_bytes("abc")));
  EXPECT_FALSE(
      OpenAssembler::begin(as_bytes(ByteWriter().number(std::uint32_t{4 * 1024 * 1024 + 1}).bytes())));
  EXPECT_FALSE(OpenAssembler::begin(as_bytes(ByteWriter().number(std::uint32_t{1}).bytes() + "ab")));
  auto begun = OpenAssembler::begin(as_bytes(ByteWriter().number(std::uint32_t{3}).bytes() + "ab"));
  ASSERT_TRUE(begun);
  EXPECT_FALSE(begun->add(as_bytes("xy")));
  EXPECT_TRUE(begun->add(as_bytes("x")));
  EXPECT_TRUE(begun->complete());
}

TEST(Records, AreFoundHoweverTheBytesAreCut) {
  std::string bytes;
  ByteWriter writer;
  WatchEvent{'c', true, 3, "dir"}.append_to(writer);
  append_record(bytes, RecordKind::kChange, writer.bytes());
  append_record(bytes, RecordKind::kContentEnd, "\x01");
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    RecordParser parser;
    std::vector<RecordKind> kinds;
    const auto on_record = [&](RecordKind kind, ByteView body) -> Status {
      kinds.push_back(kind);
      if (kind != RecordKind::kChange) return {};
      ByteReader reader(body);
      const auto event = WatchEvent::read(reader);
      EXPECT_TRUE(reader.done());
      EXPECT_EQ(event.name, "dir");
      return {};
    };
    ASSERT_TRUE(parser.feed(as_bytes(std::string_view(bytes).substr(0, cut)), on_record));
    ASSERT_TRUE(parser.feed(as_bytes(std::string_view(bytes).substr(cut)), on_record));
    EXPECT_EQ(kinds, (std::vector{RecordKind::kChange, RecordKind::kContentEnd}));
    EXPECT_TRUE(parser.idle());
  }
}

TEST(Records, RefuseImpossibleLengthsAndKinds) {
  const auto nothing = [](RecordKind, ByteView) -> Status { return {}; };
  for (const std::uint32_t size :
       {std::uint32_t{0}, std::uint32_t{kMaxRecord + 1}, std::uint32_t{0xffffffff}})
    EXPECT_FALSE(
        RecordParser().feed(as_bytes(ByteWriter().number(size).number(std::uint8_t{1}).bytes()), nothing));
  for (const std::uint8_t kind : {std::uint8_t{0}, std::uint8_t{6}})
    EXPECT_FALSE(
        RecordParser().feed(as_bytes(ByteWriter().number(std::uint32_t{1}).number(kind).bytes()), nothing));
}

}  // namespace
}  // namespace drupe
