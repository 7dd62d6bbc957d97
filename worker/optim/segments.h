// Segments: which ranges of a flat buffer the optimizer moves, and how.
//
// Threads: for_each_range is called by one thread and works on
// at::get_num_threads() of them; what runs where changes no result.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "worker/optim/lr_schedule.h"

namespace headroom::optim {

// A range that belongs to one parameter group.
struct Segment {
  int64_t offset = 0;  // in elements
  int64_t size = 0;
  int group = kWeightGroup;
};

struct GroupSettings {
  double lr = 0;
  double weight_decay = 0;
};
using AllGroupSettings = std::array<GroupSettings, kNumParameterGroups>;

// Calls `update(from, to, settings)` for ranges that cover all segments once.
// REQUIRES: segments in ascending order without overlap, inside [0, size).
void for_each_range(
    std::span<const Segment> segments, int64_t size,
    const AllGroupSettings& groups,
    const std::function<void(int64_t, int64_t, const GroupSettings&)>& update);

}  // namespace headroom::optim
