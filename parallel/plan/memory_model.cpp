#include "parallel/plan/memory_model.h"

#include <algorithm>

#include "parallel/plan/batch_split.h"

namespace headroom {
namespace {

using memory::ModelRow;

constexpr int64_t kDoubleBytes = 8;
// A box matches at most 3 anchors on a level, and of each the cell and, when
// its centre lies on a border, all four neighbours.
constexpr int64_t kMatchesPerBoxAndLevel = 15;
// Index of 5, box of 4 and anchor of 2 elements, of a match.
constexpr int64_t kIndicesPerMatch = 5;
constexpr int64_t kElementsPerMatch = 6;
// Votes, reports, counters, anchors, single values.
constexpr int64_t kSmallBytes = 64 << 10;
// Micro-batches that are gone through beyond those in flight.
constexpr size_t kMoreMicroBatches = 2;

class Estimator {
 public:
  Estimator(const MemoryRequest& request, const MeshCoordinates& rank)
      : request_(request), rank_(rank), plan_(request.plan) {
    const std::vector<int64_t>& begins = plan_.stage_begins;
    const auto at = static_cast<size_t>(rank.pipeline_stage);
    stage_.rows = request.rows;
    stage_.begin = begins[at];
    stage_.end = at + 1 < begins.size()
                     ? begins[at + 1]
                     : static_cast<int64_t>(request.rows.size());
    stage_.policies = plan_.activation_policies;
    stage_.num_shards = plan_.layout.data_parallel_size;
    stage_.zero_stage = stage_.num_shards > 1 ? plan_.zero_stage : 0;
    stage_.image_channels = request.image_channels;
    cut_ = {request.global_batch_size, plan_.layout.data_parallel_size,
            plan_.micro_batch_size, plan_.batch_norm_group_size};
    part_ = part_of(cut_, samples(), smallest_map_elements(),
                    rank.data_parallel_rank);
  }

  MemoryEstimate run() {
    add_state();
    add_step();
    estimate_.workspace = kSmallBytes;
    return estimate_;
  }

  RankMicroBatch micro_batch(size_t index) const {
    RankMicroBatch result;
    result.stage = stage_;
    result.extents = extents(part_.micro_batches[index]);
    result.loss = loss(index);
    result.num_in_flight = in_flight();
    return result;
  }

 private:
  int64_t samples() const {
    return request_.step ? request_.step->global_size
                         : request_.global_batch_size;
  }
  int64_t height() const {
    return request_.step ? request_.step->image_height : request_.image_height;
  }
  int64_t width() const {
    return request_.step ? request_.step->image_width : request_.image_width;
  }
  int64_t largest_stride() const {
    int64_t stride = 1;
    for (const ModelRow& row : request_.rows)
      stride = std::max(stride, row.stride);
    return stride;
  }
  int64_t smallest_map_elements() const {
    return height() / largest_stride() * (width() / largest_stride());
  }
  int64_t own_image_rows() const {
    const int64_t stride = largest_stride();
    return share_of(height() / stride, plan_.layout.spatial_parallel_size,
                    rank_.spatial_rank)
               .size() *
           stride;
  }
  int64_t in_flight() const {
    return std::min<int64_t>(
        plan_.layout.pipeline_parallel_size - rank_.pipeline_stage,
        static_cast<int64_t>(part_.micro_batches.size()));
  }

  template <typename Number>
  int64_t sum(const Number& of_row) const {
    int64_t total = 0;
    for (int64_t row = stage_.begin; row < stage_.end; ++row)
      total += of_row(stage_.rows[static_cast<size_t>(row)]);
    return total;
  }
  int64_t slice_of(const ModelRow& row) const {
    return memory::slice_bytes(row, request_.element_bytes, stage_.num_shards);
  }
  // Flat, over the rank's rows.
  int64_t whole_bytes() const {
    if (stage_.zero_stage > 0) return stage_.num_shards * shard_bytes();
    return sum([&](const ModelRow& row) {
      return memory::flat_bytes(row, request_.element_bytes);
    });
  }
  int64_t shard_bytes() const {
    return sum([&](const ModelRow& row) { return slice_of(row); });
  }
  int64_t largest_slice() const {
    int64_t largest = 0;
    for (int64_t row = stage_.begin; row < stage_.end; ++row)
      largest =
          std::max(largest, slice_of(stage_.rows[static_cast<size_t>(row)]));
    return largest;
  }

  void add_state() {
    const int zero = stage_.zero_stage;
    const int64_t whole = whole_bytes();
    const int64_t own = zero >= 1 ? shard_bytes() : whole;
    estimate_.parameters = zero >= 3 ? own : whole;
    estimate_.gradients = zero >= 2 ? own : whole;
    estimate_.accumulated_gradients = own;
    estimate_.moments = request_.num_moments * own;
    estimate_.average = own;
    // What a gather of new weights sends; what a scatter of gradients receives.
    if (zero == 1 || zero == 2) estimate_.communication += largest_slice();
    if (zero >= 2) estimate_.communication += largest_slice();
    const int64_t norms =
        sum([](const ModelRow& row) { return row.norm_channels; });
    int64_t all_norms = 0;
    for (const ModelRow& row : stage_.rows) all_norms += row.norm_channels;
    // Mean and variance: the model's, their average; the step's sums, which
    // every stage has of all rows.
    estimate_.statistics =
        2 * norms * 2 * request_.element_bytes + 2 * all_norms * kDoubleBytes;
  }

  void add_step() {
    memory::StepRequest step;
    step.stage = stage_;
    step.stage_begins = plan_.stage_begins;
    step.index = rank_.pipeline_stage;
    // Rounds that follow are like those before them.
    const size_t count = std::min(
        part_.micro_batches.size(),
        plan_.stage_begins.size() - static_cast<size_t>(rank_.pipeline_stage) +
            kMoreMicroBatches);
    for (size_t i = 0; i < count; ++i) {
      step.micro_batches.push_back(extents(part_.micro_batches[i]));
      step.losses.push_back(loss(i));
    }
    const memory::StepMemory measured = memory::step_memory(step);
    estimate_.images = stage_.begin > 0
                           ? 0
                           : in_flight() * step.micro_batches.front().map_bytes(
                                               request_.image_channels, 1);
    const int64_t rest = measured.peak_bytes - estimate_.images;
    estimate_.activations = std::clamp<int64_t>(
        in_flight() * measured.kept_bytes - estimate_.images, 0, rest);
    estimate_.transient = rest - estimate_.activations;
    add_targets();
    if (plan_.layout.spatial_parallel_size > 1 ||
        groups_span_ranks(cut_, samples(), smallest_map_elements()))
      estimate_.communication +=
          2 * largest_exchange(step.micro_batches.front());
  }

  memory::Extents extents(const SampleRange& micro_batch) const {
    memory::Extents result;
    result.samples = micro_batch.size();
    result.groups = num_groups(micro_batch);
    result.image_height = own_image_rows();
    result.image_width = width();
    result.neighbours =
        std::min<int64_t>(plan_.layout.spatial_parallel_size - 1, 2);
    result.element_bytes = request_.element_bytes;
    result.num_threads = request_.num_threads;
    return result;
  }

  // Where a group sits on several ranks, all of them list all groups.
  int64_t num_groups(const SampleRange& micro_batch) const {
    const auto groups = batch_norm_groups(samples(), cut_.batch_norm_group_size,
                                          smallest_map_elements());
    if (groups_span_ranks(cut_, samples(), smallest_map_elements()))
      return static_cast<int64_t>(groups.size());
    return std::ranges::count_if(groups, [&](const SampleRange& group) {
      return group.begin < micro_batch.end && group.end > micro_batch.begin;
    });
  }

  memory::LossShape loss(size_t micro_batch) const {
    memory::LossShape result;
    result.num_classes = request_.num_classes;
    result.focal = request_.focal_loss;
    const auto levels = request_.rows.back().inputs.size();
    if (request_.step) {
      if (stage_.has_head())
        result.matches = request_.step->matches[micro_batch];
      return result;
    }
    // All on the level with the largest map.
    result.matches.assign(levels, 0);
    result.matches.front() =
        most_matches(part_.micro_batches[micro_batch].size());
    return result;
  }
  int64_t most_matches(int64_t samples) const {
    return most_boxes(request_.labels, samples).boxes * kMatchesPerBoxAndLevel *
           static_cast<int64_t>(request_.rows.back().inputs.size());
  }

  void add_targets() {
    const int64_t bytes = kIndicesPerMatch * kDoubleBytes +
                          kElementsPerMatch * request_.element_bytes;
    const int64_t bound = most_matches(part_.local.size());
    const int64_t matches =
        request_.step ? request_.step->batch_matches : bound;
    estimate_.targets = (matches + request_.prefetched_batches * bound) * bytes;
    // Those of the rank's own image rows are picked out for the loss.
    if (stage_.has_head() && plan_.layout.spatial_parallel_size > 1)
      estimate_.targets += matches * bytes;
  }

  // What a rank that fails completes its exchanges with lies ready: rows of
  // maps, or sums of a layer's groups.
  int64_t largest_exchange(const memory::Extents& extents) const {
    int64_t largest = 0;
    for (int64_t i = stage_.begin; i < stage_.end; ++i) {
      const ModelRow& row = stage_.rows[static_cast<size_t>(i)];
      largest =
          std::max(largest, 2 * extents.groups * row.channels * kDoubleBytes);
      if (!extents.is_split()) continue;
      const int64_t stride =
          row.kind == ModelRow::Kind::kDetect ? largest_stride() : row.stride;
      const int64_t reach = row.kind == ModelRow::Kind::kSppf ? 6 : 1;
      const int64_t rows = std::min(reach, extents.image_height / stride);
      largest =
          std::max(largest, extents.rows_bytes(rows, row.channels / 2, stride));
      // A strided convolution reads rows of the finer map before it.
      if (row.kind == ModelRow::Kind::kConv)
        largest = std::max(
            largest,
            extents.rows_bytes(row.kernel > 3 ? 2 : 1,
                               i == 0 ? request_.image_channels : row.channels,
                               std::max<int64_t>(stride / 2, 1)));
    }
    return largest;
  }

  const MemoryRequest& request_;
  const MeshCoordinates rank_;
  const Plan& plan_;
  memory::Stage stage_;
  BatchCut cut_;
  BatchPart part_;
  MemoryEstimate estimate_;
};

}  // namespace

MemoryEstimate estimate_rank_memory(const MemoryRequest& request,
                                    const MeshCoordinates& rank) {
  return Estimator(request, rank).run();
}

std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request) {
  std::vector<MemoryEstimate> stages;
  for (int stage = 0; stage < request.plan.layout.pipeline_parallel_size;
       ++stage) {
    MeshCoordinates first;
    first.pipeline_stage = stage;
    stages.push_back(estimate_rank_memory(request, first));
  }
  return stages;
}

int64_t largest_total(const std::vector<MemoryEstimate>& stages) {
  int64_t largest = 0;
  for (const MemoryEstimate& stage : stages)
    largest = std::max(largest, stage.total());
  return largest;
}

RankMicroBatch rank_micro_batch(const MemoryRequest& request,
                                const MeshCoordinates& rank) {
  return Estimator(request, rank).micro_batch(0);
}

}  // namespace headroom
