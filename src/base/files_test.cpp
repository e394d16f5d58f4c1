#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace drupe {
namespace {

// A memory file and a file in a directory are on two kinds of file systems, between which the kernel does not
// copy.
TEST(CopyBytes, GoesFromOneKindOfFileSystemToAnother) {
  const UniqueFd memory(::memfd_create("from", MFD_CLOEXEC));
  const UniqueFd file(::open(P_tmpdir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(memory.valid() && file.valid());
  std::string bytes(700'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 / 7);
  ASSERT_TRUE(pwrite_all(memory.get(), bytes, 4096));
  for (const auto& [from, to] : {std::pair(memory.get(), file.get()), std::pair(file.get(), memory.get())}) {
    const auto copied = copy_bytes(from, to, 4096, bytes.size());
    ASSERT_TRUE(copied) << to_string(copied.error());
    std::string got(bytes.size(), '\0');
    ASSERT_EQ(::pread(to, got.data(), got.size(), 4096), static_cast<ssize_t>(got.size()));
    EXPECT_EQ(got, bytes);
  }
}

TEST(CopyBytes, AFileThatIsTooShortIsAnError) {
  const UniqueFd from(::memfd_create("from", MFD_CLOEXEC));
  const UniqueFd to(::memfd_create("to", MFD_CLOEXEC));
  ASSERT_TRUE(pwrite_all(from.get(), "short", 0));
  const auto copied = copy_bytes(from.get(), to.get(), 0, 10);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, ErrorCode::kIntegrity);
}

}  // namespace
}  // namespace drupe
