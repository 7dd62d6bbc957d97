// CachingAllocator: simulates LibTorch's caching allocator of a CUDA device,
// without a device: which segments it takes from the driver, how it cuts them,
// and when it gives them back.
//
//   request  rounded up to multiples of 512 B
//   pool     small up to 1 MiB, else large; a segment belongs to one pool
//   block    the smallest free block that is large enough (the lowest address
//            among equals), else a new segment. A segment of the small pool has
//            2 MiB. A segment of the large pool has 20 MiB; for a request of
//            10 MiB or more, the request rounded up to multiples of 2 MiB
//   rest     the unneeded rest of a block becomes a free block if it has at
//            least 512 B (small pool) or more than 1 MiB (large pool)
//   free     a freed block joins its free neighbours
//   limit    if a new segment would exceed it, wholly free segments are given
//            back to the driver; if that is not enough, the request fails
//
// These are the rules of c10/cuda/CUDACachingAllocator with its default
// settings, for one stream. Each new segment is assumed to have a higher
// address than all earlier ones.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace headroom::predict {

class CachingAllocator {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  using Block = size_t;

  // `limit`: the most bytes that all segments may have together.
  explicit CachingAllocator(int64_t limit = kNoLimit) : limit_(limit) {}

  // Returns no value if the limit does not allow it. REQUIRES: bytes > 0.
  std::optional<Block> allocate(int64_t bytes);
  void free(Block block);
  // Gives segments without used blocks back to the driver.
  void release_caches();

  // Bytes requested by callers, bytes of the used blocks (rounded and cut), and
  // bytes of all segments.
  int64_t requested_bytes() const { return requested_; }
  int64_t allocated_bytes() const { return allocated_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t peak_requested_bytes() const { return peak_requested_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_; }
  // How often free segments were given back because of the limit.
  int64_t retries() const { return retries_; }

 private:
  static constexpr Block kNone = std::numeric_limits<Block>::max();
  enum Pool : size_t { kSmall, kLarge };
  struct Piece {
    int64_t address = 0;
    int64_t bytes = 0;
    int64_t requested = 0;  // 0 if the piece is free
    Pool pool = kSmall;
    Block before = kNone;  // neighbours in the segment
    Block after = kNone;
  };
  using FreePiece = std::tuple<int64_t, int64_t, Block>;  // bytes, address

  std::optional<Block> take_free(Pool pool, int64_t bytes);
  std::optional<Block> take_segment(Pool pool, int64_t bytes);
  void cut(Block block, int64_t bytes);
  Block join(Block low, Block high);
  Block new_piece(const Piece& piece);
  void list(Block block);
  void unlist(Block block);

  const int64_t limit_;
  std::vector<Piece> pieces_;
  std::vector<Block> unused_;  // unused entries of pieces_
  std::array<std::set<FreePiece>, 2> free_;
  int64_t next_address_ = 0;
  int64_t requested_ = 0;
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
  int64_t peak_requested_ = 0;
  int64_t peak_reserved_ = 0;
  int64_t retries_ = 0;
};

}  // namespace headroom::predict
