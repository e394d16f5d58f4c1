#include "image/layer_source.h"

#include <array>

#include <unistd.h>

#include "image/digest.h"
#include "image/manifest.h"

namespace drupe {
namespace {

Compression compression_at(const LayerFile& layer) {
  std::array<std::uint8_t, 4> head{};
  const ssize_t got = ::pread(layer.fd, head.data(), std::min<std::size_t>(head.size(), layer.size),
                              static_cast<off_t>(layer.offset));
  return guess_compression(std::span(head).first(got > 0 ? static_cast<std::size_t>(got) : 0));
}

const char* name_of(Compression compression) {
  switch (compression) {
    case Compression::kGzip:
      return "gzip";
    case Compression::kZstd:
      return "zstd";
    case Compression::kNone:
      break;
  }
  return "plain";
}

class LayerSource : public ByteSource {
 public:
  LayerSource(const LayerFile& layer, std::string diff_id)
      : file_(layer.fd, layer.offset, layer.size),
        outer_(file_, layer.size),
        digest_(layer.digest),
        diff_id_(std::move(diff_id)) {}

  Status start() {
    ByteSource& input = digest_.empty() ? static_cast<ByteSource&>(file_) : outer_;
    DRUPE_ASSIGN(plain_, decompress(input, DecompressLimits{}));
    return {};
  }

  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    if (ended_) return std::size_t{0};
    DRUPE_ASSIGN(const std::size_t got, plain_->read(into));
    if (got != 0) {
      hash_.update(into.first(got));
      return got;
    }
    ended_ = true;
    if (!digest_.empty() && outer_.hex() != digest_)
      return fail(ErrorCode::kIntegrity, "The layer sha256:" + digest_.substr(0, 12) +
                                             " does not have the content that its digest names");
    if (hash_.hex() != diff_id_)
      return fail(ErrorCode::kIntegrity,
                  "A layer does not have the content that the image's config names (diff-id sha256:" +
                      diff_id_.substr(0, 12) + ")",
                  "The image is broken where it comes from: push or save it again.");
    return std::size_t{0};
  }

 private:
  FileRangeSource file_;
  HashingSource outer_;
  std::string digest_, diff_id_;
  std::unique_ptr<ByteSource> plain_;
  Sha256 hash_;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_layer(const LayerFile& layer, const std::string& diff_id) {
  const Compression found = compression_at(layer);
  if (layer.promised && *layer.promised != found)
    return fail(ErrorCode::kIntegrity, std::string("A layer is ") + name_of(found) +
                                           " where its media type says " + name_of(*layer.promised));
  auto source = std::make_unique<LayerSource>(layer, diff_id);
  DRUPE_TRY(source->start());
  return source;
}

}  // namespace drupe
