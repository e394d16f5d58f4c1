#include "hypervisor/qemu/page_capture.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "base/files.h"

namespace drupe {
namespace {

// Source: linux/Documentation/admin-guide/mm/pagemap.rst.
constexpr std::uint64_t kPresent = 1ULL << 63;
constexpr std::uint64_t kSwapped = 1ULL << 62;
constexpr std::uint64_t kFileOrShared = 1ULL << 61;

constexpr std::size_t kPagesPerStep = 4096;     // 16 MiB of RAM, 32 KiB of page map
constexpr std::size_t kCopyBytes = 256 * 1024;  // stays in the second-level cache

Status read_at(int fd, void* into, std::size_t size, std::uint64_t at) {
  auto* bytes = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t got = ::pread(fd, bytes, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_sys("Reading the machine's memory failed", errno);
    if (got == 0) return fail(ErrorCode::kVmLost, "The machine's memory is gone: the hypervisor has ended");
    bytes += got;
    size -= static_cast<std::size_t>(got);
    at += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status check_time(Deadline deadline) {
  if (Clock::now() >= deadline) return fail(ErrorCode::kTimeout, "Saving the machine's memory took too long");
  return {};
}

// Finds runs of wanted pages, step by step.
class PageScanner {
 public:
  PageScanner(const RamView& ram, const std::vector<MemoryExtent>& previous)
      : ram_(ram), previous_(previous) {}

  // Calls `run(ram_offset, length)` in ascending order.
  template <class Run>
  Status scan(Deadline deadline, Run run) {
    const std::uint64_t pages = ram_.bytes / kPageBytes;
    for (std::uint64_t first = 0; first < pages; first += kPagesPerStep) {
      DRUPE_TRY(check_time(deadline));
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kPagesPerStep, pages - first));
      DRUPE_TRY(load(first, count));
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t start = i;
        while (i < count && wanted_[i]) ++i;
        if (i > start) DRUPE_TRY(run((first + start) * kPageBytes, (i - start) * kPageBytes));
      }
    }
    return {};
  }

 private:
  Status load(std::uint64_t first, std::size_t count) {
    const std::uint64_t at = (ram_.address / kPageBytes + first) * sizeof(std::uint64_t);
    DRUPE_TRY(read_at(ram_.pagemap_fd, entries_.data(), count * sizeof(std::uint64_t), at));
    for (std::size_t i = 0; i < count; ++i)
      wanted_[i] = (entries_[i] & (kPresent | kSwapped)) != 0 && (entries_[i] & kFileOrShared) == 0;
    // What came from the delta file and was not written since is a file page, but not one of the base.
    while (next_previous_ < previous_.size()) {
      const auto& extent = previous_[next_previous_];
      const std::uint64_t begin = std::max(extent.ram_offset / kPageBytes, first);
      const std::uint64_t end = std::min((extent.ram_offset + extent.length) / kPageBytes, first + count);
      for (std::uint64_t page = begin; page < end; ++page) wanted_[page - first] = true;
      if ((extent.ram_offset + extent.length) / kPageBytes > first + count) break;
      ++next_previous_;
    }
    return {};
  }

  const RamView& ram_;
  const std::vector<MemoryExtent>& previous_;
  std::size_t next_previous_ = 0;
  std::array<std::uint64_t, kPagesPerStep> entries_{};
  std::array<bool, kPagesPerStep> wanted_{};
};

class Copier {
 public:
  Copier(const RamView& ram, int out) : ram_(ram), out_(out), buffer_(std::make_unique<char[]>(kCopyBytes)) {}

  Status copy(std::uint64_t ram_offset, std::uint64_t length, std::uint64_t file_offset, bool skip_zeros) {
    while (length > 0) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(length, kCopyBytes));
      DRUPE_TRY(read_at(ram_.mem_fd, buffer_.get(), size, ram_.address + ram_offset));
      const std::string_view bytes(buffer_.get(), size);
      DRUPE_TRY(skip_zeros ? write_data(bytes, file_offset) : write(bytes, file_offset));
      ram_offset += size;
      file_offset += size;
      length -= size;
    }
    return {};
  }
  [[nodiscard]] std::uint64_t written() const { return written_; }

 private:
  Status write(std::string_view bytes, std::uint64_t at) {
    written_ += bytes.size();
    return pwrite_all(out_, bytes, at);
  }
  Status write_data(std::string_view bytes, std::uint64_t at) {
    std::size_t start = 0;
    for (std::size_t page = 0; page < bytes.size(); page += kPageBytes) {
      if (!is_zero(bytes.substr(page, kPageBytes))) continue;
      if (page > start) DRUPE_TRY(write(bytes.substr(start, page - start), at + start));
      start = page + kPageBytes;
    }
    if (start < bytes.size()) return write(bytes.substr(start), at + start);
    return {};
  }
  static bool is_zero(std::string_view page) {
    return page.front() == 0 && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0;
  }

  const RamView& ram_;
  int out_;
  std::unique_ptr<char[]> buffer_;
  std::uint64_t written_ = 0;
};

Result<SavedMemory> capture_whole(PageScanner& scanner, const RamView& ram, int out, Deadline deadline) {
  if (::ftruncate(out, static_cast<off_t>(ram.bytes)) != 0)
    return fail_sys("Sizing the memory file failed", errno);
  Copier copier(ram, out);
  DRUPE_TRY(scanner.scan(deadline, [&copier](std::uint64_t offset, std::uint64_t length) {
    return copier.copy(offset, length, offset, true);
  }));
  return SavedMemory{{}, copier.written()};
}

Result<SavedMemory> capture_delta(PageScanner& scanner, const RamView& ram, int out, Deadline deadline) {
  ExtentList list;
  DRUPE_TRY(scanner.scan(deadline, [&list](std::uint64_t offset, std::uint64_t length) {
    list.add(offset, length);
    return Status();
  }));
  SavedMemory saved{std::move(list).packed(), 0};
  Copier copier(ram, out);
  for (const auto& extent : saved.extents) {
    DRUPE_TRY(check_time(deadline));
    DRUPE_TRY(copier.copy(extent.ram_offset, extent.length, extent.file_offset, false));
  }
  saved.bytes = copier.written();
  return saved;
}

}  // namespace

void ExtentList::add(std::uint64_t ram_offset, std::uint64_t length) {
  if (!extents_.empty()) {
    auto& last = extents_.back();
    if (ram_offset - (last.ram_offset + last.length) <= max_gap_) {
      last.length = ram_offset + length - last.ram_offset;
      return;
    }
  }
  extents_.push_back(MemoryExtent{ram_offset, 0, length});
  while (extents_.size() > limit_) join();
}

void ExtentList::join() {
  max_gap_ = std::max(max_gap_ * 2, kPageBytes);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < extents_.size(); ++i) {
    auto& last = extents_[kept];
    if (extents_[i].ram_offset - (last.ram_offset + last.length) <= max_gap_)
      last.length = extents_[i].ram_offset + extents_[i].length - last.ram_offset;
    else
      extents_[++kept] = extents_[i];
  }
  extents_.resize(std::min(kept + 1, extents_.size()));
}

std::vector<MemoryExtent> ExtentList::packed() && {
  std::uint64_t at = 0;
  for (auto& extent : extents_) {
    extent.file_offset = at;
    at += extent.length;
  }
  return std::move(extents_);
}

Result<SavedMemory> capture_pages(const RamView& ram, const std::vector<MemoryExtent>& previous,
                                  SaveForm form, int out, Deadline deadline) {
  const auto scanner = std::make_unique<PageScanner>(ram, previous);
  if (form == SaveForm::kWhole) return capture_whole(*scanner, ram, out, deadline);
  return capture_delta(*scanner, ram, out, deadline);
}

Status check_extents(const std::vector<MemoryExtent>& extents, std::uint64_t ram_bytes,
                     std::uint64_t file_bytes) {
  bool good = extents.size() <= kMaxExtents;
  std::uint64_t end = 0;
  for (const auto& extent : extents) {
    const bool aligned = (extent.ram_offset | extent.file_offset | extent.length) % kPageBytes == 0;
    good = good && aligned && extent.length > 0 && extent.ram_offset >= end && extent.length <= ram_bytes &&
           extent.ram_offset <= ram_bytes - extent.length && extent.length <= file_bytes &&
           extent.file_offset <= file_bytes - extent.length;
    if (!good) break;
    end = extent.ram_offset + extent.length;
  }
  if (good) return {};
  return fail(ErrorCode::kIntegrity, "The map of the saved memory does not fit its file",
              "The saved memory is damaged; start the sandbox from its disk.");
}

}  // namespace drupe
