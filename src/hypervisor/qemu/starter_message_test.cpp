#include "hypervisor/qemu/starter_message.h"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace drupe {
namespace {

UniqueFd some_fd() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

LaunchSpec some_spec() {
  LaunchSpec spec;
  spec.shape = {2, 512};
  spec.disk_bytes = 1 << 30;
  spec.mac = {1, 2, 3, 4, 5, 6};
  spec.memory.base = some_fd();
  for (const DiskFormat format : {DiskFormat::kRaw, DiskFormat::kQcow2})
    spec.disk.push_back(DiskNode{some_fd(), format});
  return spec;
}

TEST(StarterMessage, AMachineArrivesAsItWasSent) {
  const auto spec = decode_start(encode_start(some_spec()));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->shape.vcpus, 2U);
  EXPECT_EQ(spec->shape.memory_mib, 512U);
  EXPECT_EQ(spec->disk_bytes, 1U << 30);
  EXPECT_EQ(spec->mac[5], 6);
  EXPECT_TRUE(spec->memory.base.valid());
  EXPECT_FALSE(spec->net.valid());
  ASSERT_EQ(spec->disk.size(), 2U);
  EXPECT_EQ(spec->disk[0].format, DiskFormat::kRaw);
  EXPECT_TRUE(spec->disk[1].fd.valid());
}

TEST(StarterMessage, AHelperIsToldFromAMachine) {
  const FdMessage helper = helper_request(some_fd(), some_fd());
  EXPECT_TRUE(is_helper_request(helper));
  EXPECT_EQ(helper.fds.size(), 2U);
  EXPECT_FALSE(is_helper_request(encode_start(some_spec())));
}

TEST(StarterMessage, WhatIsMalformedIsRefused) {
  const std::string good = encode_start(some_spec()).bytes;
  for (std::size_t size = 0; size < good.size(); ++size) {
    FdMessage cut = encode_start(some_spec());
    cut.bytes.resize(size);
    EXPECT_FALSE(decode_start(std::move(cut))) << size;
  }
  FdMessage longer = encode_start(some_spec());
  longer.bytes += 'x';
  EXPECT_FALSE(decode_start(std::move(longer)));
  FdMessage fewer = encode_start(some_spec());
  fewer.fds.pop_back();
  EXPECT_FALSE(decode_start(std::move(fewer)));
  FdMessage more = encode_start(some_spec());
  more.fds.push_back(some_fd());
  EXPECT_FALSE(decode_start(std::move(more)));
  FdMessage endless = encode_start(some_spec());
  for (std::size_t i = endless.bytes.size() - 8; i < endless.bytes.size() - 4; ++i) endless.bytes[i] = '\xff';
  EXPECT_FALSE(decode_start(std::move(endless)));
}

TEST(StarterMessage, AnAnswerArrivesAsItWasSent) {
  StartAnswer sent;
  sent.failed = {17, 18};
  sent.parts->child = ChildProcess{42, some_fd()};
  sent.parts->confinement_missing = {"this", "that"};
  sent.parts->ram_bytes = 1 << 28;
  sent.parts->disk_nodes = 3;
  sent.parts->qmp = some_fd();
  sent.parts->state_out = some_fd();
  const auto answer = decode_answer(encode_answer(std::move(sent)));
  ASSERT_TRUE(answer && answer->parts);
  EXPECT_EQ(answer->failed, (std::vector<pid_t>{17, 18}));
  EXPECT_EQ(answer->parts->child.pid, 42);
  EXPECT_EQ(answer->parts->confinement_missing.size(), 2U);
  EXPECT_EQ(answer->parts->disk_nodes, 3U);
  EXPECT_TRUE(answer->parts->child.pidfd.valid() && answer->parts->qmp.valid());
  EXPECT_TRUE(answer->parts->state_out.valid());
  EXPECT_FALSE(answer->parts->mem.valid());
}

TEST(StarterMessage, ARefusalArrivesWithItsReason) {
  StartAnswer sent;
  sent.parts = fail(ErrorCode::kIntegrity, "No", "Try again.");
  const auto answer = decode_answer(encode_answer(std::move(sent)));
  ASSERT_TRUE(answer);
  ASSERT_FALSE(answer->parts);
  EXPECT_EQ(answer->parts.error().code, ErrorCode::kIntegrity);
  EXPECT_EQ(answer->parts.error().next_step, "Try again.");
}

TEST(StarterMessage, AnErrandIsNoOtherRequest) {
  const FdMessage errand = errand_request("some bytes");
  EXPECT_EQ(errand_of(errand), "some bytes");
  EXPECT_FALSE(is_helper_request(errand));
  EXPECT_EQ(errand_of(errand_request("")), "");
  EXPECT_FALSE(errand_of(helper_request(some_fd(), some_fd())));
  EXPECT_FALSE(errand_of(encode_start(some_spec())));
  FdMessage with_fd = errand_request("x");
  with_fd.fds.push_back(some_fd());
  EXPECT_FALSE(errand_of(with_fd));
}

}  // namespace
}  // namespace drupe
