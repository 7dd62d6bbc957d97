#include "coordinator/stage_cut.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "configs/memory/plan_match.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

constexpr double kMemorySlack = 1.05;  // over the least that any cut needs
constexpr double kIndexBytes = 8;

double element_bytes(const RunConfig& config) {
  return config.precision == Precision::kFp64 ? 8 : 4;
}

double pixels_of(const RunConfig& config, const std::vector<RowCost>& rows) {
  const int64_t stride = largest_stride(rows);
  return static_cast<double>(rounded_image_size(config.image_height, stride)) *
         static_cast<double>(rounded_image_size(config.image_width, stride));
}

// Copies of a rank's parameters, in buffers of their size: weights and the
// step's gradient, accumulated gradient, moments, average. ZeRO splits them
// over the data axis from behind.
double parameter_copies(const RunConfig& config, const Plan& plan) {
  const double moments = config.optimizer == "SGD" ? 1 : 2;
  const double part = 1.0 / plan.layout.data_parallel_size;
  const double weights = plan.zero_stage >= 3 ? part : 1;
  const double gradient = plan.zero_stage >= 2 ? part : 1;
  const double others = (2 + moments) * (plan.zero_stage >= 1 ? part : 1);
  return weights + gradient + others;
}

int64_t activation_bytes(ActivationPolicy policy, const RowCost& row,
                         double element, double pixels, int64_t map_bytes) {
  switch (policy) {
    case ActivationPolicy::kKeep:
      return std::llround((row.kept_elements_per_pixel * element +
                           row.kept_indices_per_pixel * kIndexBytes) *
                          pixels);
    case ActivationPolicy::kLean:
      // A convolution's output without what is derived from it.
      return std::llround(row.kept_elements_per_pixel / 2 * element * pixels);
    case ActivationPolicy::kRecompute:
      // The inputs of rows: each map once.
      return map_bytes;
    case ActivationPolicy::kOffload:
      return 0;
  }
  HEADROOM_CHECK(
      false, "activation policy " + std::to_string(static_cast<int>(policy)));
}

// With stages 1F1B holds one micro-batch more per stage that follows.
PartitionRequest request_of(const RunConfig& config, const Plan& plan,
                            const std::vector<RowCost>& rows) {
  const double element = element_bytes(config);
  const double copies = parameter_copies(config, plan);
  // Of one micro-batch, on one rank.
  const double pixels = pixels_of(config, rows) *
                        static_cast<double>(plan.micro_batch_size) /
                        plan.layout.spatial_parallel_size;
  PartitionRequest request;
  for (const RowCost& row : rows) {
    const double map = static_cast<double>(row.channels) /
                       static_cast<double>(row.stride * row.stride);
    PartitionRow part;
    part.cost = row.multiply_adds_per_pixel * pixels_of(config, rows);
    part.fixed_bytes =
        std::llround(static_cast<double>(row.parameters) * element * copies);
    part.map_bytes = std::llround(map * element * pixels);
    const ActivationPolicy policy =
        plan.activation_policies.empty()
            ? ActivationPolicy::kKeep
            : plan.activation_policies.at(request.rows.size());
    part.activation_bytes =
        activation_bytes(policy, row, element, pixels, part.map_bytes);
    part.has_parameters = row.parameters > 0;
    part.inputs = row.inputs;
    request.rows.push_back(part);
  }
  const int stages = plan.layout.pipeline_parallel_size;
  const int64_t micro_batches = num_micro_batches(config, plan);
  for (int stage = 0; stage < stages; ++stage) {
    request.in_flight.push_back(
        std::min<int64_t>(stages - stage, micro_batches));
  }
  return request;
}

// Of rows [begin, end) as a stage that holds `in_flight` micro-batches.
int64_t stage_bytes(const PartitionRequest& request, int64_t begin, int64_t end,
                    int64_t in_flight) {
  int64_t fixed = 0, per_micro_batch = 0;
  std::set<int> received;
  for (int64_t row = begin; row < end; ++row) {
    const PartitionRow& part = request.rows[static_cast<size_t>(row)];
    fixed += part.fixed_bytes;
    per_micro_batch += part.activation_bytes;
    for (const int input : part.inputs) {
      if (input < 0 || input >= begin || !received.insert(input).second) {
        continue;
      }
      per_micro_batch += request.rows[static_cast<size_t>(input)].map_bytes;
    }
  }
  return fixed + in_flight * per_micro_batch;
}

}  // namespace

// A share's micro-batches do not depend on the image: a full batch leaves no
// remainder that the smallest map could join.
int64_t num_micro_batches(const RunConfig& config, const Plan& plan) {
  return static_cast<int64_t>(
      part_of(batch_cut(config, plan), config.global_batch_size, 2, 0)
          .micro_batches.size());
}

PartitionDecision cut_stages(const RunConfig& config, const Plan& plan,
                             const std::vector<RowCost>& rows) {
  PartitionRequest request = request_of(config, plan, rows);
  if (const auto least = smallest_memory_limit(request)) {
    request.memory_limit_bytes =
        std::llround(kMemorySlack * static_cast<double>(*least));
  }
  return partition_stages(request);
}

std::vector<StageShare> stage_shares(const RunConfig& config, const Plan& plan,
                                     const std::vector<RowCost>& rows) {
  const PartitionRequest request = request_of(config, plan, rows);
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto undivided =
      static_cast<double>(stage_bytes(request, 0, num_rows, /*in_flight=*/1));
  std::vector<StageShare> shares;
  for (size_t stage = 0; stage < plan.stage_begins.size(); ++stage) {
    StageShare share;
    share.begin = plan.stage_begins[stage];
    share.end = stage + 1 < plan.stage_begins.size()
                    ? plan.stage_begins[stage + 1]
                    : num_rows;
    for (int64_t row = share.begin; row < share.end; ++row) {
      const RowCost& cost = rows.at(static_cast<size_t>(row));
      share.parameters += cost.parameters;
      share.multiply_adds_per_pixel += cost.multiply_adds_per_pixel;
    }
    share.modelled_bytes =
        stage_bytes(request, share.begin, share.end, request.in_flight[stage]);
    share.part_of_one_stage =
        static_cast<double>(share.modelled_bytes) / undivided;
    shares.push_back(share);
  }
  return shares;
}

}  // namespace headroom
