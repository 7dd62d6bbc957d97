#include "coordinator/plan_time.h"

#include <string>

#include "configs/multi_scale.h"
#include "configs/row_time.h"
#include "coordinator/stage_cut.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

// Work in the unit of configs/row_time.h: yolov5n, 16 images of 160 px, takes
// one core 0.13 s. The link: maps of megabytes between processes over loopback,
// which take as much of both cores.
constexpr DeviceSpeed kProcessorCore{.work_per_second = 1.1e11,
                                     .link_bytes_per_second = 1e9,
                                     .link_latency_seconds = 2e-4};

// Statistics of each block, means that an excitation follows from, and rows
// around maps for what reaches beyond a rank's own.
void count_exchanges(const RowProgram& program, TimeRow& row) {
  for (const RowProgram::Step& step : program.steps) {
    if (step.operation == RowProgram::Operation::kExcite) ++row.norm_layers;
    if (step.operation == RowProgram::Operation::kBlock) {
      const RowProgram::Block& block = program.blocks[step.block];
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

double row_work(const RowCost& row, ActivationPolicy policy) {
  const RowTime time = row_time(row);
  switch (policy) {
    case ActivationPolicy::kKeep:
      return time.keep;
    case ActivationPolicy::kLean:
      return time.lean;
    case ActivationPolicy::kRecompute:
      return time.recompute;
    case ActivationPolicy::kOffload:
      return time.offload;
  }
  HEADROOM_CHECK(
      false, "activation policy " + std::to_string(static_cast<int>(policy)));
}

StepEstimate plan_time(const RunConfig& config, const Plan& plan,
                       const std::vector<RowCost>& rows) {
  const int64_t stride = largest_stride(rows);
  TimeRequest request;
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.element_bytes = config.precision == Precision::kFp64 ? 8 : 4;
  request.device = kProcessorCore;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowCost& row = rows[i];
    const ActivationPolicy policy = plan.activation_policies.empty()
                                        ? ActivationPolicy::kKeep
                                        : plan.activation_policies[i];
    TimeRow part;
    part.work_per_pixel = row_work(row, policy);
    part.parameters = row.parameters;
    part.channels = row.channels;
    part.stride = row.stride;
    part.inputs = row.inputs;
    if (row.program != nullptr) count_exchanges(*row.program, part);
    request.rows.push_back(part);
  }
  // A run goes through all of its sizes, each as often.
  const std::vector<InputSize> sizes = input_sizes(config, stride);
  StepEstimate mean;
  for (const InputSize& size : sizes) {
    request.image_height = size.height;
    request.image_width = size.width;
    const StepEstimate step = estimate_step(request);
    mean.compute += step.compute / static_cast<double>(sizes.size());
    mean.communication +=
        step.communication / static_cast<double>(sizes.size());
  }
  return mean;
}

}  // namespace headroom
