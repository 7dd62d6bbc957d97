#include "parallel/plan/batch_split.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/group_places.h"

namespace headroom::plan {

namespace {

// One rank's whole share of a batch.
SampleRange whole_share(int64_t count, int ranks, const GroupPlaces& groups,
                        bool even, int rank) {
  const int64_t num_groups = groups.size();
  if (!even || num_groups == 0 || num_groups % ranks != 0) {
    return share_of(count, ranks, rank);
  }
  const SampleRange own = share_of(num_groups, ranks, rank);
  return {groups[own.begin].begin, groups[own.end - 1].end};
}

int64_t largest_share(const BatchCut& cut) {
  return largest_share(cut.global_batch_size, cut.data_parallel_size,
                       cut.groups);
}

bool runs_whole_shares(const BatchCut& cut) {
  return cut.micro_batch_size >= largest_share(cut);
}

// How many whole groups fit into one micro-batch of a batch of `count` samples.
int64_t groups_at_once(const BatchCut& cut, int64_t count,
                       int64_t micro_batch_size) {
  const int64_t group =
      cut.groups.even ? largest_group(count, cut.groups) : cut.groups.size;
  return std::max<int64_t>(1, micro_batch_size / group);
}

}  // namespace

int64_t largest_share(int64_t global_batch_size, int data_parallel_size,
                      const BatchNormRule& groups) {
  const GroupPlaces all(global_batch_size, groups,
                        /*smallest_map_elements=*/2);
  return whole_share(global_batch_size, data_parallel_size, all, groups.even, 0)
      .size();
}

std::optional<std::string> groups_error(const BatchCut& cut) {
  if (runs_whole_shares(cut)) return std::nullopt;
  if (cut.groups.even) {
    const int64_t largest = largest_group(cut.global_batch_size, cut.groups);
    if (cut.micro_batch_size >= largest) return std::nullopt;
    return cat("micro_batch_size ", cut.micro_batch_size,
               " is less than the largest batch-norm group of ", largest,
               " and than a rank's whole share of ", largest_share(cut), " (",
               counted(cut.global_batch_size, "image"), " / ",
               counted(cut.data_parallel_size, "rank"), ")");
  }
  if (cut.micro_batch_size % cut.groups.size == 0) return std::nullopt;
  return cat("micro_batch_size ", cut.micro_batch_size,
             " is neither a multiple of batch_norm_group_size ",
             cut.groups.size, " nor a rank's whole share of ",
             largest_share(cut), " (", counted(cut.global_batch_size, "image"),
             " / ", counted(cut.data_parallel_size, "rank"), ")");
}

namespace {

// The part of each rank in a batch that is divided into groups.
class RanksParts {
 public:
  RanksParts(const BatchCut& cut, int64_t count, int64_t smallest_map_elements)
      : cut_(cut),
        count_(count),
        groups_(count, cut.groups, smallest_map_elements),
        are_whole_(runs_whole_shares(cut)) {
    if (are_whole_) return;
    if (const auto reason = groups_error(cut)) HEADROOM_CHECK(false, *reason);
  }

  bool are_whole() const { return are_whole_; }
  const GroupPlaces& groups() const { return groups_; }
  SampleRange groups_of(int rank) const {
    return share_of(groups_.size(), cut_.data_parallel_size, rank);
  }
  int64_t begin_of(int64_t group) const {
    return group < groups_.size() ? groups_[group].begin : count_;
  }
  SampleRange samples_of(int rank) const {
    if (are_whole_) {
      return whole_share(count_, cut_.data_parallel_size, groups_,
                         cut_.groups.even, rank);
    }
    const SampleRange own = groups_of(rank);
    return {begin_of(own.begin), begin_of(own.end)};
  }

 private:
  const BatchCut& cut_;
  const int64_t count_;
  const GroupPlaces groups_;
  const bool are_whole_;
};

}  // namespace

BatchPart part_of(const BatchCut& cut, int64_t count,
                  int64_t smallest_map_elements, int data_parallel_rank) {
  BatchPart part;
  const RanksParts parts(cut, count, smallest_map_elements);
  part.local = parts.samples_of(data_parallel_rank);
  if (parts.are_whole()) {
    part.micro_batches.push_back(part.local);
    return part;
  }
  const SampleRange own = parts.groups_of(data_parallel_rank);
  const int64_t at_once = groups_at_once(cut, count, cut.micro_batch_size);
  const int64_t num_micro_batches =
      std::max<int64_t>(1, divided_up(parts.groups_of(0).size(), at_once));
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    const int64_t first = std::min(own.begin + i * at_once, own.end);
    const int64_t last = std::min(first + at_once, own.end);
    part.micro_batches.push_back({parts.begin_of(first), parts.begin_of(last)});
  }
  return part;
}

std::vector<BatchPart> parts_of(const BatchCut& cut, int64_t count,
                                int64_t smallest_map_elements) {
  std::vector<BatchPart> parts;
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    parts.push_back(part_of(cut, count, smallest_map_elements, rank));
  }
  return parts;
}

std::vector<SharedGroup> shared_groups(const BatchCut& cut, int64_t count,
                                       int64_t smallest_map_elements) {
  const RanksParts parts(cut, count, smallest_map_elements);
  std::vector<SharedGroup> shared;
  for (int rank = 1; rank < cut.data_parallel_size; ++rank) {
    const int64_t begin = parts.samples_of(rank).begin;
    if (begin >= count) break;  // this rank and those behind it have no samples
    const int64_t group = parts.groups().group_of(begin);
    if (parts.groups()[group].begin == begin) continue;
    if (!shared.empty() && shared.back().group == group) {
      shared.back().last_rank = rank;
      continue;
    }
    const bool meets_previous =
        !shared.empty() && shared.back().last_rank == rank - 1;
    shared.push_back(
        {group, rank - 1, rank, meets_previous ? 1 - shared.back().round : 0});
  }
  return shared;
}

bool groups_span_ranks(const BatchCut& cut, int64_t count,
                       int64_t smallest_map_elements) {
  return !shared_groups(cut, count, smallest_map_elements).empty();
}

namespace {

// groups_span_ranks() of a full batch, if the smallest map has more than one
// cell per image.
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
  return cat("a micro-batch of ", largest_micro_batch(cut),
             " is no more than one batch-norm group of ", group);
}

BatchPart part_in_smaller_micro_batches(const BatchCut& cut, int64_t count,
                                        int64_t smallest_map_elements,
                                        int data_parallel_rank,
                                        int64_t micro_batch_size) {
  BatchPart part =
      part_of(cut, count, smallest_map_elements, data_parallel_rank);
  if (groups_span_ranks(cut, count, smallest_map_elements)) return part;
  const std::vector<SampleRange> groups =
      batch_norm_groups(count, cut.groups, smallest_map_elements);
  const auto groups_of = [&](const SampleRange& local) {
    std::vector<SampleRange> own;
    for (const SampleRange& group : groups) {
      if (local.begin <= group.begin && group.end <= local.end)
        own.push_back(group);
    }
    return own;
  };
  const int64_t at_once = groups_at_once(cut, count, micro_batch_size);
  int64_t most_groups = 0;
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    const BatchPart other = part_of(cut, count, smallest_map_elements, rank);
    most_groups =
        std::max<int64_t>(most_groups, std::ssize(groups_of(other.local)));
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
