#include "parallel/plan/batch_split.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom::plan {

namespace {

// A rank's whole share of a batch.
SampleRange whole_share(int64_t count, int ranks,
                        const std::vector<SampleRange>& groups, bool even,
                        int rank) {
  const auto num_groups = static_cast<int64_t>(groups.size());
  if (!even || num_groups == 0 || num_groups % ranks != 0) {
    return share_of(count, ranks, rank);
  }
  const SampleRange own = share_of(num_groups, ranks, rank);
  return {groups[static_cast<size_t>(own.begin)].begin,
          groups[static_cast<size_t>(own.end) - 1].end};
}

int64_t largest_share(const BatchCut& cut) {
  return largest_share(cut.global_batch_size, cut.data_parallel_size,
                       cut.groups);
}

bool runs_whole_shares(const BatchCut& cut) {
  return cut.micro_batch_size >= largest_share(cut);
}

// The whole groups that a micro-batch of a batch of `count` samples has.
int64_t groups_at_once(const BatchCut& cut, int64_t count,
                       int64_t micro_batch_size) {
  const int64_t group =
      cut.groups.even ? largest_group(count, cut.groups) : cut.groups.size;
  return std::max<int64_t>(1, micro_batch_size / group);
}

}  // namespace

int64_t largest_share(int64_t global_batch_size, int data_parallel_size,
                      const BatchNormRule& groups) {
  if (!groups.even) {
    return share_of(global_batch_size, data_parallel_size, 0).size();
  }
  const auto all = batch_norm_groups(global_batch_size, groups,
                                     /*smallest_map_elements=*/2);
  return whole_share(global_batch_size, data_parallel_size, all, groups.even, 0)
      .size();
}

std::optional<std::string> groups_error(const BatchCut& cut) {
  if (runs_whole_shares(cut)) return std::nullopt;
  if (cut.groups.even) {
    const int64_t largest = largest_group(cut.global_batch_size, cut.groups);
    if (cut.micro_batch_size >= largest) return std::nullopt;
    return "micro_batch_size " + std::to_string(cut.micro_batch_size) +
           " is less than the largest batch-norm group of " +
           std::to_string(largest) + " and than a rank's whole share of " +
           std::to_string(largest_share(cut)) + " (" +
           std::to_string(cut.global_batch_size) + " images / " +
           std::to_string(cut.data_parallel_size) + " ranks)";
  }
  if (cut.micro_batch_size % cut.groups.size == 0) return std::nullopt;
  return "micro_batch_size " + std::to_string(cut.micro_batch_size) +
         " is neither a multiple of batch_norm_group_size " +
         std::to_string(cut.groups.size) + " nor a rank's whole share of " +
         std::to_string(largest_share(cut)) + " (" +
         std::to_string(cut.global_batch_size) + " images / " +
         std::to_string(cut.data_parallel_size) + " ranks)";
}

namespace {

// The parts of one batch, whose groups are found once for all ranks.
class BatchParts {
 public:
  BatchParts(const BatchCut& cut, int64_t count, int64_t smallest_map_elements)
      : cut_(cut),
        count_(count),
        groups_(batch_norm_groups(count, cut.groups, smallest_map_elements)),
        has_whole_shares_(runs_whole_shares(cut)) {
    if (has_whole_shares_) return;
    if (const auto reason = groups_error(cut)) HEADROOM_CHECK(false, *reason);
    at_once_ = groups_at_once(cut, count, cut.micro_batch_size);
  }

  const std::vector<SampleRange>& groups() const { return groups_; }

  SampleRange local(int rank) const {
    if (has_whole_shares_) {
      return whole_share(count_, cut_.data_parallel_size, groups_,
                         cut_.groups.even, rank);
    }
    const SampleRange own = groups_of(rank);
    return {begin_of(own.begin), begin_of(own.end)};
  }

  BatchPart of(int rank) const {
    BatchPart part{.local = local(rank), .micro_batches = {}};
    if (has_whole_shares_) {
      part.micro_batches.push_back(part.local);
      return part;
    }
    const SampleRange own = groups_of(rank);
    const int64_t num_micro_batches =
        std::max<int64_t>(1, divided_up(groups_of(0).size(), at_once_));
    for (int64_t i = 0; i < num_micro_batches; ++i) {
      const int64_t first = std::min(own.begin + i * at_once_, own.end);
      const int64_t last = std::min(first + at_once_, own.end);
      part.micro_batches.push_back({begin_of(first), begin_of(last)});
    }
    return part;
  }

 private:
  SampleRange groups_of(int rank) const {
    return share_of(std::ssize(groups_), cut_.data_parallel_size, rank);
  }
  int64_t begin_of(int64_t group) const {
    return group < std::ssize(groups_)
               ? groups_[static_cast<size_t>(group)].begin
               : count_;
  }

  const BatchCut& cut_;
  const int64_t count_;
  const std::vector<SampleRange> groups_;
  const bool has_whole_shares_;
  int64_t at_once_ = 1;  // groups of a micro-batch
};

}  // namespace

BatchPart part_of(const BatchCut& cut, int64_t count,
                  int64_t smallest_map_elements, int data_parallel_rank) {
  return BatchParts(cut, count, smallest_map_elements).of(data_parallel_rank);
}

std::vector<BatchPart> parts_of(const BatchCut& cut, int64_t count,
                                int64_t smallest_map_elements) {
  const BatchParts cutter(cut, count, smallest_map_elements);
  std::vector<BatchPart> parts;
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    parts.push_back(cutter.of(rank));
  }
  return parts;
}

bool groups_span_ranks(const BatchCut& cut, int64_t count,
                       int64_t smallest_map_elements) {
  const BatchParts parts(cut, count, smallest_map_elements);
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    const int64_t begin = parts.local(rank).begin;
    if (begin < count && !std::ranges::binary_search(parts.groups(), begin, {},
                                                     &SampleRange::begin)) {
      return true;
    }
  }
  return false;
}

namespace {

// The groups of a full batch, whose images have more than one cell in the
// smallest map.
bool full_batch_groups_span_ranks(const BatchCut& cut) {
  return groups_span_ranks(cut, cut.global_batch_size,
                           /*smallest_map_elements=*/2);
}

int64_t largest_micro_batch(const BatchCut& cut) {
  return std::min(cut.micro_batch_size, largest_share(cut));
}

}  // namespace

std::vector<int64_t> smaller_micro_batches(const BatchCut& cut) {
  std::vector<int64_t> sizes;
  if (full_batch_groups_span_ranks(cut)) return sizes;
  const int64_t group = largest_group(cut.global_batch_size, cut.groups);
  for (int64_t size = largest_micro_batch(cut); size > group;) {
    size = std::max(group, size / 2 / group * group);
    sizes.push_back(size);
  }
  return sizes;
}

std::optional<std::string> smaller_micro_batch_error(const BatchCut& cut) {
  if (!smaller_micro_batches(cut).empty()) return std::nullopt;
  const std::string group =
      std::to_string(largest_group(cut.global_batch_size, cut.groups));
  if (full_batch_groups_span_ranks(cut)) {
    return "batch-norm groups of " + group +
           " span ranks, and their samples must be in flight together";
  }
  return "a micro-batch of " + std::to_string(largest_micro_batch(cut)) +
         " is no more than one batch-norm group of " + group;
}

BatchPart part_in_smaller_micro_batches(const BatchCut& cut, int64_t count,
                                        int64_t smallest_map_elements,
                                        int data_parallel_rank,
                                        int64_t micro_batch_size) {
  const BatchParts parts(cut, count, smallest_map_elements);
  BatchPart part = parts.of(data_parallel_rank);
  if (groups_span_ranks(cut, count, smallest_map_elements)) return part;
  const std::vector<SampleRange>& groups = parts.groups();
  const auto groups_of = [&](const SampleRange& local) {
    std::vector<SampleRange> own;
    auto group =
        std::ranges::lower_bound(groups, local.begin, {}, &SampleRange::begin);
    for (; group != groups.end() && group->end <= local.end; ++group) {
      own.push_back(*group);
    }
    return own;
  };
  const int64_t at_once = groups_at_once(cut, count, micro_batch_size);
  int64_t most_groups = 0;
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    most_groups = std::max<int64_t>(most_groups,
                                    std::ssize(groups_of(parts.local(rank))));
  }
  const std::vector<SampleRange> own = groups_of(part.local);
  const int64_t num_micro_batches =
      std::max<int64_t>(1, divided_up(most_groups, at_once));
  const auto begin_of = [&](int64_t group) {
    return group < std::ssize(own) ? own[static_cast<size_t>(group)].begin
                                   : part.local.end;
  };
  part.micro_batches.clear();
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    part.micro_batches.push_back(
        {begin_of(i * at_once), begin_of((i + 1) * at_once)});
  }
  return part;
}

}  // namespace headroom::plan
