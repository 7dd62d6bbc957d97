#include "parallel/predict/caching_allocator.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom::predict {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kStep = 512;
constexpr int64_t kLargestSmall = kMiB;
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kLargeSegment = 20 * kMiB;
constexpr int64_t kLeastOwnSegment = 10 * kMiB;
constexpr int64_t kSegmentStep = 2 * kMiB;

int64_t segment_bytes(int64_t rounded) {
  if (rounded <= kLargestSmall) return kSmallSegment;
  return rounded < kLeastOwnSegment ? kLargeSegment
                                    : round_up(rounded, kSegmentStep);
}

}  // namespace

std::optional<CachingAllocator::Block> CachingAllocator::allocate(
    int64_t bytes) {
  HEADROOM_CHECK(bytes > 0, "an empty tensor asks for no memory");
  const int64_t rounded = round_up(bytes, kStep);
  const Pool pool = rounded <= kLargestSmall ? kSmall : kLarge;
  std::optional<Block> block = take_free(pool, rounded);
  if (!block) block = take_segment(pool, rounded);
  if (!block) return std::nullopt;
  cut(*block, rounded);
  Piece& piece = pieces_[*block];
  piece.requested = bytes;
  requested_ += bytes;
  allocated_ += piece.bytes;
  peak_requested_ = std::max(peak_requested_, requested_);
  return block;
}

void CachingAllocator::free(Block block) {
  Piece& piece = pieces_[block];
  HEADROOM_CHECK(piece.requested > 0, "freed twice");
  requested_ -= piece.requested;
  allocated_ -= piece.bytes;
  piece.requested = 0;
  Block joined = block;
  if (piece.before != kNone && pieces_[piece.before].requested == 0) {
    unlist(piece.before);
    joined = join(piece.before, block);
  }
  if (const Block after = pieces_[joined].after;
      after != kNone && pieces_[after].requested == 0) {
    unlist(after);
    joined = join(joined, after);
  }
  list(joined);
}

void CachingAllocator::release_caches() {
  for (std::set<FreePiece>& pool : free_) {
    std::erase_if(pool, [&](const FreePiece& free) {
      const auto& [bytes, address, block] = free;
      const Piece& piece = pieces_[block];
      if (piece.before != kNone || piece.after != kNone) return false;
      reserved_ -= bytes;
      unused_.push_back(block);
      return true;
    });
  }
}

std::optional<CachingAllocator::Block> CachingAllocator::take_free(
    Pool pool, int64_t bytes) {
  const auto fitting = free_[pool].lower_bound({bytes, 0, 0});
  if (fitting == free_[pool].end()) return std::nullopt;
  const Block block = std::get<Block>(*fitting);
  free_[pool].erase(fitting);
  return block;
}

std::optional<CachingAllocator::Block> CachingAllocator::take_segment(
    Pool pool, int64_t bytes) {
  const int64_t segment = segment_bytes(bytes);
  if (segment > limit_ - reserved_) {
    release_caches();
    ++retries_;
    if (segment > limit_ - reserved_) return std::nullopt;
  }
  reserved_ += segment;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  Piece piece;
  piece.address = next_address_;
  piece.bytes = segment;
  piece.pool = pool;
  next_address_ += segment;
  return new_piece(piece);
}

// Splits the unneeded rest of a block off as a free block if the rest is large
// enough.
void CachingAllocator::cut(Block block, int64_t bytes) {
  const Piece whole = pieces_[block];
  const int64_t rest = whole.bytes - bytes;
  if (whole.pool == kSmall ? rest < kStep : rest <= kLargestSmall) return;
  Piece piece;
  piece.address = whole.address + bytes;
  piece.bytes = rest;
  piece.pool = whole.pool;
  piece.before = block;
  piece.after = whole.after;
  const Block made = new_piece(piece);
  if (whole.after != kNone) pieces_[whole.after].before = made;
  pieces_[block].bytes = bytes;
  pieces_[block].after = made;
  list(made);
}

CachingAllocator::Block CachingAllocator::join(Block low, Block high) {
  pieces_[low].bytes += pieces_[high].bytes;
  pieces_[low].after = pieces_[high].after;
  if (pieces_[low].after != kNone) pieces_[pieces_[low].after].before = low;
  unused_.push_back(high);
  return low;
}

CachingAllocator::Block CachingAllocator::new_piece(const Piece& piece) {
  if (unused_.empty()) {
    pieces_.push_back(piece);
    return pieces_.size() - 1;
  }
  const Block block = unused_.back();
  unused_.pop_back();
  pieces_[block] = piece;
  return block;
}

void CachingAllocator::list(Block block) {
  const Piece& piece = pieces_[block];
  free_[piece.pool].insert({piece.bytes, piece.address, block});
}

void CachingAllocator::unlist(Block block) {
  const Piece& piece = pieces_[block];
  free_[piece.pool].erase({piece.bytes, piece.address, block});
}

}  // namespace headroom::predict
