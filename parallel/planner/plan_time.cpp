#include "parallel/planner/plan_time.h"

#include <string>

#include "configs/layers/layer_time.h"
#include "configs/multi_scale.h"
#include "parallel/base/check.h"
#include "parallel/planner/stage_cut.h"

namespace headroom::planner {
namespace {

// Work in the unit of configs/layers/layer_time.h: yolov5n, 16 images of 160
// px, takes one core 0.13 s. The link: maps of megabytes between processes over
// loopback, which take as much of both cores.
constexpr predict::DeviceSpeed kProcessorCore{.work_per_second = 1.1e11,
                                              .link_bytes_per_second = 1e9,
                                              .link_latency_seconds = 2e-4};

// Statistics of each block, means that an excitation follows from, and rows
// around maps for what reaches beyond a rank's own.
void count_exchanges(const layers::LayerProgram& program,
                     predict::TimedLayer& layer) {
  for (const layers::LayerProgram::Step& step : program.steps) {
    if (step.operation == layers::LayerProgram::Operation::kSqueezeExcite)
      ++layer.norm_layers;
    if (step.operation == layers::LayerProgram::Operation::kBlock) {
      const layers::LayerProgram::Block& block = program.blocks[step.block];
      ++layer.norm_layers;
      if (block.kernel == 1) continue;
      ++layer.halo_exchanges;
      layer.halo_channel_rows += (block.kernel - 1) * block.channels;
    }
    const int64_t channels = program.shape_of(step.inputs.front()).channels;
    for (const int64_t window : step.windows) {
      ++layer.halo_exchanges;
      layer.halo_channel_rows += (window - 1) * channels;
    }
  }
}

}  // namespace

double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy) {
  const layers::LayerTime time = layers::layer_time(layer);
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
                                const std::vector<layers::LayerCost>& layers) {
  const int64_t stride = layers::largest_stride(layers);
  predict::TimeRequest request;
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.element_bytes = config.precision == configs::Precision::kFp64 ? 8 : 4;
  request.device = kProcessorCore;
  for (size_t i = 0; i < layers.size(); ++i) {
    const layers::LayerCost& layer = layers[i];
    const plan::ActivationPolicy policy = plan.activation_policies.empty()
                                              ? plan::ActivationPolicy::kKeep
                                              : plan.activation_policies[i];
    predict::TimedLayer part;
    part.work_per_pixel = layer_work(layer, policy);
    part.parameters = layer.parameters;
    part.channels = layer.channels;
    part.stride = layer.stride;
    part.inputs = layer.inputs;
    if (layer.program != nullptr) count_exchanges(*layer.program, part);
    request.layers.push_back(part);
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
