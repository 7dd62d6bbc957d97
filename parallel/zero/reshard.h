// reshard: what moves where when a layer that was split over one number of
// ranks is to be split over another.
//
// To gather a layer for a file is to reshard it to one rank; to load it, to
// reshard it from one. Padding never moves. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/zero/shard_map.h"

namespace headroom::zero {

// Offsets count from the beginning of a rank's slice of the layer.
struct RangeCopy {
  int from_rank = 0;
  int64_t from_offset = 0;
  int to_rank = 0;
  int64_t to_offset = 0;
  int64_t size = 0;
  bool operator==(const RangeCopy&) const = default;
};

// In the order of the elements; together they cover each element of the layer
// once. REQUIRES: both maps have the layer, with one size.
std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t layer);

}  // namespace headroom::zero
