#include "hypervisor/qemu/page_capture.h"

#include <csignal>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "hypervisor/qemu/byte_ring.h"

namespace drupe {
namespace {

constexpr std::uint64_t kRam = 64U << 20;
constexpr auto kPages = static_cast<std::size_t>(kRam / kPageBytes);

Deadline soon() {
  return Clock::now() + std::chrono::seconds(20);
}

std::string page_of(std::size_t page, char kind) {
  std::string text = std::string(1, kind) + std::to_string(page);
  text.resize(kPageBytes, kind);
  return text;
}

UniqueFd memory_file() {
  return UniqueFd(::memfd_create("test", MFD_CLOEXEC));
}

/// A process that plays the hypervisor: maps `base` privately, extents of a delta over it, and writes some
/// pages.
class FakeMachine {
 public:
  FakeMachine(int base, int delta, const std::vector<MemoryExtent>& extents,
              const std::vector<std::size_t>& pages, char kind) {
    ram_ = static_cast<char*>(::mmap(nullptr, kRam, PROT_READ | PROT_WRITE, MAP_PRIVATE, base, 0));
    for (const auto& extent : extents)
      EXPECT_NE(::mmap(ram_ + extent.ram_offset, extent.length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_FIXED, delta, static_cast<off_t>(extent.file_offset)),
                MAP_FAILED);
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const std::size_t page : pages)
        std::memcpy(ram_ + page * kPageBytes, page_of(page, kind).data(), kPageBytes);
      // Reads must not make a page this process's own.
      for (std::size_t page = 0; page < kPages; page += 3)
        static_cast<void>(*static_cast<volatile char*>(ram_ + page * kPageBytes));
      if (::write(ends[1], "r", 1) != 1) ::_exit(1);
      ::pause();
      ::_exit(0);
    }
    char ready = 0;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    const std::string proc = "/proc/" + std::to_string(pid_);
    mem_ = UniqueFd(::open((proc + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    pagemap_ = UniqueFd(::open((proc + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  }
  ~FakeMachine() {
    end();
    ::munmap(ram_, kRam);
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] RamView view() const {
    return RamView{mem_.get(), pagemap_.get(), reinterpret_cast<std::uint64_t>(ram_), kRam};
  }

 private:
  char* ram_ = nullptr;
  pid_t pid_ = -1;
  UniqueFd mem_, pagemap_;
};

std::string restored(int base, int delta, const std::vector<MemoryExtent>& extents) {
  std::string ram(kRam, '\0');
  EXPECT_EQ(::pread(base, ram.data(), kRam, 0), static_cast<ssize_t>(kRam));
  for (const auto& extent : extents)
    EXPECT_EQ(
        ::pread(delta, ram.data() + extent.ram_offset, extent.length, static_cast<off_t>(extent.file_offset)),
        static_cast<ssize_t>(extent.length));
  return ram;
}

UniqueFd base_file() {
  UniqueFd base = memory_file();
  EXPECT_EQ(::ftruncate(base.get(), static_cast<off_t>(kRam)), 0);
  for (std::size_t page = 0; page < kPages; page += 5)
    EXPECT_TRUE(pwrite_all(base.get(), page_of(page, 'b'), page * kPageBytes));
  return base;
}

std::vector<std::size_t> random_pages(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> pages;
  for (std::size_t i = 0; i < count; ++i) pages.push_back(random() % kPages);
  return pages;
}

TEST(PageCapture, ADeltaHoldsWhatTheProcessWroteAndLittleElse) {
  const UniqueFd base = base_file();
  const std::vector<std::size_t> pages{0, 7, 8, 9, 4000, kPages - 1};
  const FakeMachine machine(base.get(), -1, {}, pages, 'w');
  const UniqueFd out = memory_file();
  const auto saved = capture_pages(machine.view(), {}, SaveForm::kDelta, out.get(), soon());
  ASSERT_TRUE(saved) << to_string(saved.error());
  EXPECT_EQ(saved->extents.size(), 3U) << "0..9 with a gap of 6 pages is one extent";
  EXPECT_LE(saved->bytes, 12 * kPageBytes);
  EXPECT_TRUE(check_extents(saved->extents, kRam, saved->bytes));
  const auto ram = restored(base.get(), out.get(), saved->extents);
  for (const std::size_t page : pages)
    EXPECT_EQ(ram.substr(page * kPageBytes, kPageBytes), page_of(page, 'w'));
  EXPECT_EQ(ram.substr(5 * kPageBytes, kPageBytes), page_of(5, 'b'))
      << "a page in a joined gap keeps the base's content";
}

TEST(PageCapture, ASecondGenerationKeepsThePagesOfTheFirst) {
  const UniqueFd base = base_file();
  const UniqueFd first_file = memory_file();
  const UniqueFd second_file = memory_file();
  const auto first_pages = random_pages(3000, 1);
  const auto second_pages = random_pages(500, 2);
  std::vector<MemoryExtent> first_extents;
  {
    const FakeMachine machine(base.get(), -1, {}, first_pages, '1');
    const auto saved = capture_pages(machine.view(), {}, SaveForm::kDelta, first_file.get(), soon());
    ASSERT_TRUE(saved);
    first_extents = saved->extents;
  }
  const FakeMachine machine(base.get(), first_file.get(), first_extents, second_pages, '2');
  const auto saved =
      capture_pages(machine.view(), first_extents, SaveForm::kDelta, second_file.get(), soon());
  ASSERT_TRUE(saved);
  auto expected = restored(base.get(), first_file.get(), first_extents);
  for (const std::size_t page : second_pages)
    expected.replace(page * kPageBytes, kPageBytes, page_of(page, '2'));
  EXPECT_TRUE(restored(base.get(), second_file.get(), saved->extents) == expected);
}

TEST(PageCapture, AWholeSaveHasHolesForZeroPages) {
  const UniqueFd empty = memory_file();
  ASSERT_EQ(::ftruncate(empty.get(), static_cast<off_t>(kRam)), 0);
  const std::string path = testing::TempDir() + "whole-ram";
  const auto out = open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC);
  ASSERT_TRUE(out);
  const FakeMachine machine(empty.get(), -1, {}, {3, 4, 9000}, 'w');
  const auto saved = capture_pages(machine.view(), {}, SaveForm::kWhole, out->get(), soon());
  ASSERT_TRUE(saved);
  EXPECT_THAT(saved->extents, testing::IsEmpty());
  EXPECT_EQ(saved->bytes, 3 * kPageBytes);
  EXPECT_EQ(::lseek(out->get(), 0, SEEK_END), static_cast<off_t>(kRam));
  EXPECT_EQ(::lseek(out->get(), 0, SEEK_DATA), static_cast<off_t>(3 * kPageBytes));
  EXPECT_EQ(restored(out->get(), -1, {}).substr(9000 * kPageBytes, kPageBytes), page_of(9000, 'w'));
  ::unlink(path.c_str());
}

TEST(PageCapture, AnEndedProcessIsALostMachine) {
  const UniqueFd base = base_file();
  FakeMachine machine(base.get(), -1, {}, {1}, 'w');
  const auto view = machine.view();
  machine.end();
  const UniqueFd out = memory_file();
  const auto saved = capture_pages(view, {}, SaveForm::kDelta, out.get(), soon());
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kVmLost);
}

TEST(PageCapture, AnAddressThatIsALieIsAnErrorAndNothingElse) {
  const UniqueFd base = base_file();
  const FakeMachine machine(base.get(), -1, {}, {1}, 'w');
  auto view = machine.view();
  view.address = 0x1000;
  const UniqueFd out = memory_file();
  const auto nothing = capture_pages(view, {}, SaveForm::kDelta, out.get(), soon());
  EXPECT_TRUE(!nothing || nothing->bytes == 0);
  EXPECT_FALSE(capture_pages(view, {MemoryExtent{0, 0, kPageBytes}}, SaveForm::kDelta, out.get(), soon()));
}

TEST(PageCapture, ADeadlineThatHasPassedIsATimeout) {
  const UniqueFd base = base_file();
  const FakeMachine machine(base.get(), -1, {}, {1}, 'w');
  const UniqueFd out = memory_file();
  const auto saved = capture_pages(machine.view(), {}, SaveForm::kDelta, out.get(), Clock::now());
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kTimeout);
}

TEST(ExtentList, NeverHoldsMoreThanItsLimitAndStillCoversEverything) {
  ExtentList list(0, 100);
  for (std::uint64_t page = 0; page < 200'000; page += 1 + page % 37) list.add(page * kPageBytes, kPageBytes);
  const auto extents = std::move(list).packed();
  EXPECT_LE(extents.size(), 100U);
  std::size_t at = 0;
  for (std::uint64_t page = 0; page < 200'000; page += 1 + page % 37) {
    while (at < extents.size() && extents[at].ram_offset + extents[at].length <= page * kPageBytes) ++at;
    ASSERT_LT(at, extents.size());
    EXPECT_LE(extents[at].ram_offset, page * kPageBytes);
  }
  std::uint64_t file = 0;
  for (const auto& extent : extents) {
    EXPECT_EQ(extent.file_offset, file);
    file += extent.length;
  }
}

TEST(CheckExtents, AnythingThatDoesNotFitIsDamage) {
  const std::uint64_t p = kPageBytes;
  EXPECT_TRUE(check_extents({{0, 0, p}, {2 * p, p, p}}, 4 * p, 2 * p));
  const std::vector<std::vector<MemoryExtent>> bad{{{1, 0, p}},
                                                   {{0, 1, p}},
                                                   {{0, 0, 1}},
                                                   {{0, 0, 0}},
                                                   {{4 * p, 0, p}},
                                                   {{0, 2 * p, p}},
                                                   {{0, 0, 5 * p}},
                                                   {{0, 0, ~0ULL - p + 1}},
                                                   {{~0ULL - p + 1, 0, p}},
                                                   {{2 * p, 0, p}, {0, p, p}},
                                                   {{0, 0, 2 * p}, {p, 0, p}}};
  for (const auto& extents : bad) EXPECT_FALSE(check_extents(extents, 4 * p, 2 * p));
  EXPECT_FALSE(check_extents(std::vector<MemoryExtent>(kMaxExtents + 1), 1ULL << 40, 1ULL << 40));
}

TEST(ByteRing, KeepsTheLastBytes) {
  ByteRing ring(8);
  ring.append("abc");
  EXPECT_EQ(ring.text(), "abc");
  ring.append("defgh");
  EXPECT_EQ(ring.text(), "abcdefgh");
  ring.append("ij");
  EXPECT_EQ(ring.text(), "cdefghij");
  ring.append("0123456789");
  EXPECT_EQ(ring.text(), "23456789");
  ring.append("xyz");
  EXPECT_EQ(ring.text(), "56789xyz");
}

}  // namespace
}  // namespace drupe
