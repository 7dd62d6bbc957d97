#include "parallel/planner/plan_time.h"

#include <string>

#include "configs/layers/row_time.h"
#include "configs/multi_scale.h"
#include "parallel/base/check.h"
#include "parallel/planner/stage_cut.h"

namespace headroom::planner {
namespace {

// Work in the unit of configs/layers/row_time.h: yolov5n, 16 images of 160 px,
// takes one core 0.13 s. The link: maps of megabytes between processes over
// loopback, which take as much of both cores.
constexpr predict::DeviceSpeed kProcessorCore{.work_per_second = 1.1e11,
                                              .link_bytes_per_second = 1e9,
                                              .link_latency_seconds = 2e-4};

// Statistics of each block, means that an excitation follows from, and rows
// around maps for what reaches beyond a rank's own.
void count_exchanges(const layers::RowProgram& program, predict::TimeRow& row) {
  for (const layers::RowProgram::Step& step : program.steps) {
    if (step.operation == layers::RowProgram::Operation::kExcite)
      ++row.norm_layers;
    if (step.operation == layers::RowProgram::Operation::kBlock) {
      const layers::RowProgram::Block& block = program.blocks[step.block];
      ++row.norm_layers;
      if (block.kernel == 1) continue;
      ++row.halo_exchanges;
      row.halo_channel_rows += (block.kernel - 1) * block.channels;
    }
    const int64_t channels = program.shape_of(step.inputs.front()).channels;
    for (const int64_t window : step.windows) {
      ++row.halo_exchanges;
      row.halo_channel_rows += (window - 1) * channels;
    }
  }
}

}  // namespace

double row_work(const layers::RowCost& row, plan::ActivationPolicy policy) {
  const layers::RowTime time = layers::row_time(row);
  switch (policy) {
    case plan::ActivationPolicy::kKeep:
      return time.keep;
    case plan::ActivationPolicy::kLean:
      return time.lean;
    case plan::ActivationPolicy::kRecompute:
      return time.recompute;
    case plan::ActivationPolicy::kOffload:
      return time.offload;
  }
  HEADROOM_CHECK(
      false, "activation policy " + std::to_string(static_cast<int>(policy)));
}

predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::RowCost>& rows) {
  const int64_t stride = layers::largest_stride(rows);
  predict::TimeRequest request;
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.element_bytes = config.precision == configs::Precision::kFp64 ? 8 : 4;
  request.device = kProcessorCore;
  for (size_t i = 0; i < rows.size(); ++i) {
    const layers::RowCost& row = rows[i];
    const plan::ActivationPolicy policy = plan.activation_policies.empty()
                                              ? plan::ActivationPolicy::kKeep
                                              : plan.activation_policies[i];
    predict::TimeRow part;
    part.work_per_pixel = row_work(row, policy);
    part.parameters = row.parameters;
    part.channels = row.channels;
    part.stride = row.stride;
    part.inputs = row.inputs;
    if (row.program != nullptr) count_exchanges(*row.program, part);
    request.rows.push_back(part);
  }
  // A run goes through all of its sizes, each as often.
  const std::vector<configs::InputSize> sizes =
      configs::input_sizes(config, stride);
  predict::StepEstimate mean;
  for (const configs::InputSize& size : sizes) {
    request.image_height = size.height;
    request.image_width = size.width;
    const predict::StepEstimate step = predict::estimate_step(request);
    mean.compute += step.compute / static_cast<double>(sizes.size());
    mean.communication +=
        step.communication / static_cast<double>(sizes.size());
  }
  return mean;
}

}  // namespace headroom::planner
