// CachingAllocator: what LibTorch's caching allocator makes of a sequence of
// requests on a CUDA device, without a device: which segments it takes from the
// driver, how it cuts them, and when it gives them back.
//
//   a request  is rounded up to 512 B, at least that
//   its pool   small up to 1 MiB, else large; a segment is of one pool
//   its block  the smallest free one that holds it (of equal ones the lowest),
//              else of a new segment: 2 MiB; of the large pool 20 MiB below a
//              request of 10 MiB, from there on the request in steps of 2 MiB
//   the rest   is cut off from 512 B on, in the large pool above 1 MiB
//   freed      a block joins its free neighbours
//   the limit  where a new segment passes it, all segments that are wholly
//              free go back first; else the request is refused
//
// These are the rules of c10/cuda/CUDACachingAllocator with its default
// settings, for one stream; a segment is taken to lie above those before it.
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

  // `limit` bytes of segments.
  explicit CachingAllocator(int64_t limit = kNoLimit) : limit_(limit) {}

  // Nothing where the limit does not allow it. REQUIRES: bytes > 0.
  std::optional<Block> allocate(int64_t bytes);
  void free(Block block);
  // Segments that are wholly free go back to the driver.
  void release_caches();

  // Bytes that were asked for; that blocks have, rounded and cut; that segments
  // have.
  int64_t requested_bytes() const { return requested_; }
  int64_t allocated_bytes() const { return allocated_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t peak_requested_bytes() const { return peak_requested_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_; }
  // How often segments had to go back for the limit.
  int64_t retries() const { return retries_; }

 private:
  static constexpr Block kNone = std::numeric_limits<Block>::max();
  enum Pool : size_t { kSmall, kLarge };
  struct Piece {
    int64_t address = 0;
    int64_t bytes = 0;
    int64_t requested = 0;  // 0: free
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
  std::vector<Block> unused_;  // places in pieces_
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
