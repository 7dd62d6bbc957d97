// GroupPlaces: computes the range of each batch-norm group without storing a
// list. This is fast enough for the planner, which examines many plans for
// thousands of ranks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/plan/batch_norm_groups.h"

namespace headroom::plan {

class GroupPlaces {
 public:
  // Takes the same arguments as batch_norm_groups().
  GroupPlaces(int64_t count, const BatchNormRule& rule,
              int64_t smallest_map_elements)
      : count_(count), rule_(rule) {
    if (count <= 0) return;
    if (rule.even) {
      // Each group gets at least two values per channel, if the batch has that
      // many.
      const int64_t least = smallest_map_elements < 2 ? 2 : 1;
      const int64_t most_groups = std::max<int64_t>(1, count / least);
      const int64_t nearest = (2 * count + rule.size) / (2 * rule.size);
      size_ = std::clamp<int64_t>(nearest, 1, most_groups);
      return;
    }
    size_ = (count + rule.size - 1) / rule.size;
    const int64_t last = count - (size_ - 1) * rule.size;
    if (size_ > 1 && last * smallest_map_elements < 2) --size_;
  }

  int64_t size() const { return size_; }

  // REQUIRES: 0 <= index < size().
  SampleRange operator[](int64_t index) const {
    if (rule_.even) return share_of(count_, size_, index);
    const int64_t begin = index * rule_.size;
    return {begin, index + 1 == size_ ? count_ : begin + rule_.size};
  }

  // The group that has this sample. REQUIRES: 0 <= sample < the batch's number.
  int64_t group_of(int64_t sample) const {
    int64_t low = 0, high = size_ - 1;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      (*this)[middle].begin > sample ? high = middle - 1 : low = middle;
    }
    return low;
  }

 private:
  const int64_t count_;
  const BatchNormRule rule_;
  int64_t size_ = 0;
};

}  // namespace headroom::plan
