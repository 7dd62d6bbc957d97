#include "parallel/plan/memory_model.h"

#include <algorithm>

#include "parallel/plan/batch_split.h"

namespace headroom {
namespace {

// A tensor of a flat buffer begins at a multiple of 64 bytes.
constexpr int64_t kAlignment = 64;
constexpr int64_t kDoubleBytes = 8;
// A box matches at most 3 anchors and 3 cells on each of 3 levels.
constexpr int64_t kMatchesPerBox = 27;
// Index of 5, box of 4 and anchor of 2 elements, of a match.
constexpr int64_t kIndicesPerMatch = 5;
constexpr int64_t kElementsPerMatch = 6;
// The convolutions' scratch memory, votes, single values.
constexpr int64_t kWorkspaceBytes = 2 << 20;

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

struct StageRange {
  int64_t begin, end;
};

class Estimator {
 public:
  Estimator(const MemoryRequest& request, int stage)
      : request_(request),
        stage_(stage),
        range_(range_of(request, stage)),
        data_(request.plan.layout.data_parallel_size),
        zero_(data_ > 1 ? request.plan.zero_stage : 0) {}

  MemoryEstimate run() {
    add_state();
    add_step();
    return estimate_;
  }

 private:
  static StageRange range_of(const MemoryRequest& request, int stage) {
    const std::vector<int64_t>& begins = request.plan.stage_begins;
    const auto at = static_cast<size_t>(stage);
    return {begins[at], at + 1 < begins.size()
                            ? begins[at + 1]
                            : static_cast<int64_t>(request.rows.size())};
  }
  template <typename Number>
  int64_t sum(const Number& of_row) const {
    int64_t total = 0;
    for (int64_t row = range_.begin; row < range_.end; ++row)
      total += of_row(request_.rows[static_cast<size_t>(row)]);
    return total;
  }
  // A rank's slice of every row where ZeRO splits them.
  int64_t flat_bytes(bool split) const {
    return sum([&](const MemoryRow& row) {
      const int64_t bytes = row.parameters * request_.element_bytes +
                            row.parameter_tensors * kAlignment;
      return split ? divided_up(bytes, data_) + kAlignment : bytes;
    });
  }

  void add_state() {
    estimate_.parameters = flat_bytes(zero_ >= 3);
    estimate_.gradients = flat_bytes(zero_ >= 2);
    estimate_.accumulated_gradients = flat_bytes(zero_ >= 1);
    estimate_.moments = request_.num_moments * flat_bytes(zero_ >= 1);
    estimate_.average = flat_bytes(zero_ >= 1);
    const int64_t norms =
        sum([](const MemoryRow& row) { return row.norm_channels; });
    const int64_t tensors =
        sum([](const MemoryRow& row) { return row.parameter_tensors; });
    // Mean and variance: the model's, their average, the step's sums.
    estimate_.statistics =
        2 * norms * (2 * request_.element_bytes + kDoubleBytes) +
        2 * tensors * kAlignment;
  }

  void add_step() {
    const Plan& plan = request_.plan;
    const BatchCut cut = {request_.global_batch_size, data_,
                          plan.micro_batch_size, plan.batch_norm_group_size};
    const BatchPart part = part_of(cut, request_.global_batch_size, 2, 0);
    int64_t samples = 0;
    for (const SampleRange& micro_batch : part.micro_batches)
      samples = std::max(samples, micro_batch.size());
    const int stages = plan.layout.pipeline_parallel_size;
    const int64_t in_flight = std::min<int64_t>(
        stages - stage_, static_cast<int64_t>(part.micro_batches.size()));

    const MicroBatchRequest walk = walk_of(samples);
    const MicroBatchMemory one = micro_batch_memory(walk);
    estimate_.images = in_flight * one.image_bytes;
    estimate_.activations = in_flight * (one.kept_bytes - one.image_bytes);
    estimate_.transient = one.peak_bytes - one.kept_bytes;
    add_communication(one, in_flight);
    if (stage_ + 1 == stages) {
      const int64_t matches = part.local.size() * matches_per_image();
      estimate_.targets =
          matches * (kIndicesPerMatch * kDoubleBytes +
                     kElementsPerMatch * request_.element_bytes);
    }
    estimate_.workspace = kWorkspaceBytes;
  }

  int64_t matches_per_image() const {
    return request_.boxes_per_image * kMatchesPerBox;
  }

  MicroBatchRequest walk_of(int64_t samples) const {
    const Plan& plan = request_.plan;
    int64_t stride = 1;
    for (const MemoryRow& row : request_.rows)
      stride = std::max(stride, row.stride);
    MicroBatchRequest walk;
    walk.rows = request_.rows;
    walk.begin = range_.begin;
    walk.end = range_.end;
    walk.samples = samples;
    walk.groups = std::max<int64_t>(
        1,
        divided_up(samples, std::max<int64_t>(1, plan.batch_norm_group_size)));
    walk.split_image = plan.layout.spatial_parallel_size > 1;
    walk.image_height = divided_up(request_.image_height / stride,
                                   plan.layout.spatial_parallel_size) *
                        stride;
    walk.image_width = request_.image_width;
    walk.image_channels = request_.image_channels;
    walk.element_bytes = request_.element_bytes;
    walk.num_classes = request_.num_classes;
    walk.matches = samples * matches_per_image();
    walk.policies = plan.activation_policies;
    walk.zero_stage = zero_;
    walk.num_shards = data_;
    return walk;
  }

  // Of the next instruction what is received is posted already, and what was
  // sent stays until the peer has answered. What ZeRO sends of a row, or
  // receives, lies in a buffer apart.
  void add_communication(const MicroBatchMemory& one, int64_t in_flight) {
    const int stages = request_.plan.layout.pipeline_parallel_size;
    if (stages > 1) {
      estimate_.communication += std::max(one.received_bytes, one.sent_bytes) +
                                 in_flight * one.sent_bytes +
                                 one.received_bytes;
    }
    if (zero_ > 0) {
      int64_t largest = 0;
      for (int64_t row = range_.begin; row < range_.end; ++row)
        largest = std::max(largest,
                           request_.rows[static_cast<size_t>(row)].parameters);
      estimate_.communication +=
          divided_up(largest * request_.element_bytes, data_) + kAlignment;
    }
  }

  const MemoryRequest& request_;
  const int stage_;
  const StageRange range_;
  const int data_;
  const int zero_;
  MemoryEstimate estimate_;
};

}  // namespace

std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request) {
  std::vector<MemoryEstimate> stages;
  for (int stage = 0; stage < request.plan.layout.pipeline_parallel_size;
       ++stage)
    stages.push_back(Estimator(request, stage).run());
  return stages;
}

int64_t largest_total(const std::vector<MemoryEstimate>& stages) {
  int64_t largest = 0;
  for (const MemoryEstimate& stage : stages)
    largest = std::max(largest, stage.total());
  return largest;
}

}  // namespace headroom
