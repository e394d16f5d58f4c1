#include "agent/order.h"

#include <gtest/gtest.h>

namespace drupe::agent {
namespace {

Order typical() {
  Order order;
  order.options.exec_id = "one";
  order.options.argv = {"printf", "\xff\xfe", ""};
  order.options.env = {"A=1"};
  order.options.cwd = "/srv";
  order.options.user = "1000:5";
  order.options.stdin_open = true;
  order.defaults = {{"PATH=/bin", "B=\xc3"}, "app", "/home/app"};
  return order;
}

TEST(Order, ComesBackAsItWas) {
  const Order sent = typical();
  const std::string bytes = Order::encode(sent.options, sent.defaults);
  ByteReader reader(bytes);
  ASSERT_EQ(reader.number<std::uint32_t>(), bytes.size() - 4);
  const auto got = Order::decode(reader.rest());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->options.argv, sent.options.argv);
  EXPECT_EQ(got->options.env, sent.options.env);
  EXPECT_EQ(got->options.cwd, sent.options.cwd);
  EXPECT_EQ(got->options.user, sent.options.user);
  EXPECT_TRUE(got->options.stdin_open);
  EXPECT_EQ(got->defaults.env, sent.defaults.env);
  EXPECT_EQ(got->defaults.user, sent.defaults.user);
  EXPECT_EQ(got->defaults.cwd, sent.defaults.cwd);
}

TEST(Order, RefusesEveryPartOfOne) {
  const Order sent = typical();
  const std::string bytes = Order::encode(sent.options, sent.defaults).substr(4);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(Order::decode(as_bytes(std::string_view(bytes).substr(0, size)))) << size;
  EXPECT_FALSE(Order::decode(as_bytes(bytes + "x")));
}

TEST(Order, IsACommand) {
  OpenRequest request;
  request.kind = OpenKind::kStat;
  request.file.path = "/";
  const std::string bytes = ByteWriter().text(request.encode()).texts({}).text("").text("").take();
  EXPECT_FALSE(Order::decode(as_bytes(bytes)));
}

}  // namespace
}  // namespace drupe::agent
