#include "image/decompress.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <zlib.h>
#include <zstd.h>

namespace drupe {
namespace {

constexpr std::size_t kInputSize = 256 * 1024;
// A window larger than this is refused, as the zstd command does by default: it would be memory for nothing.
constexpr int kMaxWindowLog = 27;

/// The input half of every decoder, with the limits on the output.
class Decoder : public ByteSource {
 public:
  Decoder(ByteSource& inner, std::vector<std::uint8_t> head, const DecompressLimits& limits)
      : inner_(inner), input_(std::move(head)), limits_(limits) {
    fill_ = input_.size();
    taken_ = fill_;
    input_.resize(std::max(kInputSize, fill_));
  }

 protected:
  [[nodiscard]] std::span<const std::uint8_t> input() const {
    return std::span(input_).subspan(at_, fill_ - at_);
  }
  void consume(std::size_t bytes) { at_ += bytes; }
  /// Makes input() non-empty unless the end is reached.
  Status refill() {
    if (at_ < fill_ || ended_) return {};
    DRUPE_ASSIGN(const std::size_t got, inner_.read(input_));
    at_ = 0;
    fill_ = got;
    taken_ += got;
    ended_ = got == 0;
    return {};
  }
  Status account(std::size_t made) {
    made_ += made;
    if (made_ > limits_.total)
      return fail(
          ErrorCode::kLimit,
          "The decompressed data is larger than the limit of " + std::to_string(limits_.total >> 20) + " MiB",
          "If the image is trusted and really that large, split it into smaller layers.");
    if (made_ > limits_.ratio_floor && made_ / limits_.ratio > taken_)
      return fail(ErrorCode::kLimit, "The data grows more than " + std::to_string(limits_.ratio) +
                                         " times when it is decompressed, as only a decompression bomb does");
    return {};
  }

 private:
  ByteSource& inner_;
  std::vector<std::uint8_t> input_;
  DecompressLimits limits_;
  std::size_t at_ = 0;
  std::size_t fill_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t made_ = 0;
  bool ended_ = false;
};

class PlainDecoder : public Decoder {
 public:
  using Decoder::Decoder;
  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    DRUPE_TRY(refill());
    const std::size_t size = std::min(into.size(), input().size());
    if (size != 0) std::memcpy(into.data(), input().data(), size);
    consume(size);
    DRUPE_TRY(account(size));
    return size;
  }
};

class GzipDecoder : public Decoder {
 public:
  using Decoder::Decoder;
  ~GzipDecoder() override {
    if (ready_) inflateEnd(&stream_);
  }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;

  Status start() {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK)
      return fail(ErrorCode::kHost, "Starting the gzip decoder failed");
    ready_ = true;
    return {};
  }

  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    into = into.first(std::min<std::size_t>(into.size(), std::size_t{1} << 30));
    stream_.next_out = into.data();
    stream_.avail_out = static_cast<uInt>(into.size());
    while (stream_.avail_out == into.size()) {
      DRUPE_TRY(refill());
      if (input().empty()) {
        if (between_members_) return std::size_t{0};
        return fail(ErrorCode::kIntegrity, "The gzip data is cut short");
      }
      if (between_members_) {
        if (inflateReset(&stream_) != Z_OK)
          return fail(ErrorCode::kHost, "Restarting the gzip decoder failed");
        between_members_ = false;
      }
      DRUPE_TRY(step());
    }
    const std::size_t made = into.size() - stream_.avail_out;
    DRUPE_TRY(account(made));
    return made;
  }

 private:
  Status step() {
    const auto in = input();
    stream_.next_in = const_cast<Bytef*>(in.data());  // zlib does not write to its input
    stream_.avail_in = static_cast<uInt>(in.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    consume(in.size() - stream_.avail_in);
    if (code == Z_STREAM_END)
      between_members_ = true;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      return fail(ErrorCode::kIntegrity, std::string("The gzip data is damaged: ") +
                                             (stream_.msg != nullptr ? stream_.msg : "unknown cause"));
    return {};
  }

  z_stream stream_{};
  bool ready_ = false;
  bool between_members_ = false;
};

class ZstdDecoder : public Decoder {
 public:
  using Decoder::Decoder;
  Status start() {
    if (!stream_) return fail(ErrorCode::kHost, "Starting the zstd decoder failed");
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
    return {};
  }

  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos == 0) {
      DRUPE_TRY(refill());
      const auto in = input();
      // With no input left a call may still give bytes the decoder holds back.
      ZSTD_inBuffer from{in.data(), in.size(), 0};
      if (in.empty() && between_frames_) return std::size_t{0};
      const std::size_t hint = ZSTD_decompressStream(stream_.get(), &out, &from);
      if (ZSTD_isError(hint) != 0)
        return fail(ErrorCode::kIntegrity,
                    std::string("The zstd data is damaged: ") + ZSTD_getErrorName(hint));
      consume(from.pos);
      between_frames_ = hint == 0;
      if (in.empty() && out.pos == 0 && !between_frames_)
        return fail(ErrorCode::kIntegrity, "The zstd data is cut short");
    }
    DRUPE_TRY(account(out.pos));
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
  bool between_frames_ = false;
};

}  // namespace

Compression guess_compression(std::span<const std::uint8_t> head) {
  if (head.size() >= 2 && head[0] == 0x1f && head[1] == 0x8b) return Compression::kGzip;
  if (head.size() >= 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd)
    return Compression::kZstd;
  // A skippable frame in front (zstd:chunked writes them): 0x184D2A50 to 0x184D2A5F, little-endian.
  if (head.size() >= 4 && (head[0] & 0xf0) == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18)
    return Compression::kZstd;
  return Compression::kNone;
}

Result<std::unique_ptr<ByteSource>> decompress(ByteSource& inner, const DecompressLimits& limits) {
  std::vector<std::uint8_t> head(4);
  std::size_t have = 0;
  while (have < head.size()) {
    DRUPE_ASSIGN(const std::size_t got, inner.read(std::span(head).subspan(have)));
    if (got == 0) break;
    have += got;
  }
  head.resize(have);
  switch (guess_compression(head)) {
    case Compression::kGzip: {
      auto decoder = std::make_unique<GzipDecoder>(inner, std::move(head), limits);
      DRUPE_TRY(decoder->start());
      return decoder;
    }
    case Compression::kZstd: {
      auto decoder = std::make_unique<ZstdDecoder>(inner, std::move(head), limits);
      DRUPE_TRY(decoder->start());
      return decoder;
    }
    case Compression::kNone:
      break;
  }
  return std::make_unique<PlainDecoder>(inner, std::move(head), limits);
}

}  // namespace drupe
