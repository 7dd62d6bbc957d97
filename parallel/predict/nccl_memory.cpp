#include "parallel/predict/nccl_memory.h"

#include <algorithm>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kConnectionBytes =
    int64_t{8} * 512 * 8 * 16 + int64_t{120} * 640 * 8 * 8 + 4 * kMebibyte;
// NVLink: kMostNcclChannels of parallel/cuda/nccl_limits.h. Over PCIe NCCL
// finds two paths and uses each twice.
constexpr int64_t kNvlinkChannels = 16, kPcieChannels = 4;
// Bytes per process for kernel code and NCCL's own tables; a generous estimate.
constexpr int64_t kProcessBytes = 32 * kMebibyte;

// parallel/cuda/nccl_limits.h.
constexpr int64_t kSmallSumChannels = 2, kMessageChannels = 2;

struct RankGroup {
  int64_t ranks = 1;
  bool is_on_one_machine = true;
  bool has_small_sums = false;
};

std::vector<RankGroup> groups_of(const plan::ParallelLayout& layout,
                                 int zero_stage, int64_t cards_of_machine) {
  const int64_t world = layout.world_size();
  const int64_t data = layout.data_parallel_size;
  const int64_t spatial = layout.spatial_parallel_size;
  const bool is_one_machine = world <= cards_of_machine;
  std::vector<RankGroup> groups;
  const auto add = [&](int64_t ranks, bool are_neighbours,
                       bool has_small_sums = false) {
    if (ranks > 1) {
      groups.push_back(
          {ranks,
           is_one_machine || (are_neighbours && ranks <= cards_of_machine),
           has_small_sums});
    }
  };
  add(world, true);
  // Groups that are equal to another group are skipped. With one pipeline
  // stage, the replicas of a stage are all ranks of the run; with one data
  // rank, the ranks of an image are all replicas.
  if (layout.pipeline_parallel_size > 1) add(data * spatial, true);
  if (data > 1) add(spatial, true);
  if (zero_stage > 0 && spatial > 1) add(data, false);
  // Ranks that share batch-norm groups: with those before and those behind, and
  // others in the last batch of an epoch. Two ranks are the replicas. A group
  // has about 16 images, so with few images a card it spans several ranks, of
  // which each sends to at most three.
  for (int i = 0; i < 4 && data > 2; ++i) {
    add(std::min<int64_t>(data, 4) * spatial, true, true);
  }
  return groups;
}

int64_t bytes_of_group(const RankGroup& group, const CardLinks& links) {
  const int64_t most = links.has_nvlink ? kNvlinkChannels : kPcieChannels;
  const int64_t channels =
      group.has_small_sums ? std::min(most, kSmallSumChannels) : most;
  const int64_t senders =
      std::min<int64_t>(group.is_on_one_machine ? 2 : 3, group.ranks - 1);
  return channels * senders * kConnectionBytes;
}

// To and from each other stage, and each other part of the image.
int64_t message_connections(const plan::ParallelLayout& layout) {
  return 2 *
         (layout.pipeline_parallel_size - 1 + layout.spatial_parallel_size - 1);
}

}  // namespace

int64_t nccl_groups(const plan::ParallelLayout& layout, int zero_stage) {
  return static_cast<int64_t>(groups_of(layout, zero_stage, 1).size()) +
         message_connections(layout);
}

int64_t nccl_bytes(const plan::ParallelLayout& layout, int zero_stage,
                   const CardLinks& links) {
  int64_t bytes = 0;
  for (const RankGroup& group :
       groups_of(layout, zero_stage, links.cards_of_machine)) {
    bytes += bytes_of_group(group, links);
  }
  // Each has a ring of its two ranks, and the messages' own buffers.
  bytes +=
      message_connections(layout) * kMessageChannels * 2 * kConnectionBytes;
  return bytes == 0 ? 0 : bytes + kProcessBytes;
}

}  // namespace headroom::predict
