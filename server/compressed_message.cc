#include "server/compressed_message.h"

#include <absl/strings/str_cat.h>
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace headroom {
namespace {

// Of the message while it grows: small ones stay small, large ones come in few pieces.
constexpr std::int64_t kFirstPiece = 4 << 10;
constexpr std::int64_t kLargestPiece = 256 << 10;
constexpr int kGzipFormat = 16 + MAX_WBITS;

bool IsGzip(const std::vector<grpc::Slice>& slices) {
  constexpr std::uint8_t kMagic[] = {0x1f, 0x8b};
  std::size_t matched = 0;
  for (const grpc::Slice& slice : slices) {
    for (std::size_t i = 0; i < slice.size(); ++i) {
      if (slice.begin()[i] != kMagic[matched]) return false;
      if (++matched == std::size(kMagic)) return true;
    }
  }
  return false;
}

// One stream under way.
class Inflater {
 public:
  explicit Inflater(std::int64_t limit) : left_(limit), ready_(inflateInit2(&stream_, kGzipFormat) == Z_OK) {}
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ready() const { return ready_; }
  // The stream has ended, where it should.
  bool whole() const { return ended_; }

  enum class Result { kOk, kTooLong, kBroken };
  Result Take(const grpc::Slice& slice) {
    stream_.next_in = const_cast<Bytef*>(slice.begin());
    stream_.avail_in = static_cast<uInt>(slice.size());
    while (true) {
      if (ended_) return stream_.avail_in == 0 ? Result::kOk : Result::kBroken;  // nothing may follow the end
      if (piece_.size() == 0) StartPiece();
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return Result::kBroken;
      ended_ = result == Z_STREAM_END;
      const bool full = stream_.avail_out == 0;
      if (full || ended_) FinishPiece();
      if (left_ < 0) return Result::kTooLong;
      // With room left in the piece, all that the slice held has been taken.
      if (!full && !ended_) return Result::kOk;
    }
  }

  grpc::ByteBuffer Message() const { return {pieces_.data(), pieces_.size()}; }

 private:
  void StartPiece() {
    // A byte beyond the limit shows that it would be passed.
    const std::int64_t size = std::min(next_piece_, left_ + 1);
    next_piece_ = std::min(2 * next_piece_, kLargestPiece);
    piece_ = grpc::Slice(static_cast<std::size_t>(size));
    stream_.next_out = const_cast<Bytef*>(piece_.begin());
    stream_.avail_out = static_cast<uInt>(size);
  }
  void FinishPiece() {
    const std::size_t used = piece_.size() - stream_.avail_out;
    left_ -= static_cast<std::int64_t>(used);
    if (used > 0) pieces_.push_back(piece_.sub(0, used));
    piece_ = grpc::Slice();
  }

  z_stream stream_{};
  std::int64_t left_;
  const bool ready_;
  bool ended_ = false;
  std::int64_t next_piece_ = kFirstPiece;
  grpc::Slice piece_;
  std::vector<grpc::Slice> pieces_;
};

}  // namespace

absl::Status Inflate(grpc::ByteBuffer& message, Bytes limit) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok() || !IsGzip(slices)) return absl::OkStatus();
  Inflater inflater(limit.count);
  if (!inflater.ready()) return absl::ResourceExhaustedError("the server has no memory left for this request");
  for (const grpc::Slice& slice : slices) {
    switch (inflater.Take(slice)) {
      case Inflater::Result::kOk: continue;
      case Inflater::Result::kTooLong:
        return absl::ResourceExhaustedError(
            absl::StrCat("the compressed request expands beyond the limit of ", limit.count, " bytes"));
      case Inflater::Result::kBroken: return absl::InvalidArgumentError("the compressed request is not whole");
    }
  }
  if (!inflater.whole()) return absl::InvalidArgumentError("the compressed request is not whole");
  grpc::ByteBuffer whole = inflater.Message();
  message.Swap(&whole);
  return absl::OkStatus();
}

}  // namespace headroom
