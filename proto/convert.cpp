#include "proto/convert.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"

namespace headroom::wire {
namespace {

Error bad_field(const std::string& field, int64_t value,
                const std::string& rule) {
  return Error("wire", field + " = " + std::to_string(value) + ": " + rule,
               "install the same build on every node");
}

int checked_axis(const std::string& field, int32_t value) {
  if (value < 1 || value > kMaxWorldSize) {
    throw bad_field(
        field, value,
        "an axis has 1 to " + std::to_string(kMaxWorldSize) + " ranks");
  }
  return value;
}

int64_t checked_samples(const std::string& field, int64_t value) {
  constexpr int64_t kMaxSamples = int64_t{1} << 31;
  if (value < 1 || value > kMaxSamples) {
    throw bad_field(field, value, "a number of samples is at least 1");
  }
  return value;
}

void check_size(const std::string& field, int64_t bytes) {
  if (bytes < 0) throw bad_field(field, bytes, "a size");
}

void check_predictions(const plan::Plan& plan) {
  const auto check_count = [&](const std::string& field, size_t size) {
    const auto count = static_cast<int64_t>(size);
    if (count == 0 || count == plan.layout.world_size()) return;
    throw bad_field(field, count,
                    "the plan's layout " + plan::to_string(plan.layout) +
                        " has " + std::to_string(plan.layout.world_size()) +
                        " ranks");
  };
  check_count("predicted_peak_bytes", plan.predicted_peak_bytes.size());
  check_count("predicted_phase_bytes", plan.predicted_phase_bytes.size());
  for (const int64_t bytes : plan.predicted_peak_bytes)
    check_size("predicted_peak_bytes", bytes);
  for (const plan::PhaseBytes& rank : plan.predicted_phase_bytes)
    for (const int64_t bytes : {rank.start_up, rank.training, rank.validation,
                                rank.checkpoint, rank.host})
      check_size("predicted_phase_bytes", bytes);
}

}  // namespace

wire::ParallelLayout to_wire(const plan::ParallelLayout& layout) {
  wire::ParallelLayout message;
  message.set_pipeline_parallel_size(layout.pipeline_parallel_size);
  message.set_data_parallel_size(layout.data_parallel_size);
  message.set_spatial_parallel_size(layout.spatial_parallel_size);
  return message;
}

plan::ParallelLayout from_wire(const wire::ParallelLayout& message) {
  plan::ParallelLayout layout;
  layout.pipeline_parallel_size =
      checked_axis("pipeline_parallel_size", message.pipeline_parallel_size());
  layout.data_parallel_size =
      checked_axis("data_parallel_size", message.data_parallel_size());
  layout.spatial_parallel_size =
      checked_axis("spatial_parallel_size", message.spatial_parallel_size());
  // Two axes at their bound fit in 64 bits, three do not: check in between.
  const int64_t outer =
      int64_t{layout.pipeline_parallel_size} * layout.data_parallel_size;
  if (outer > kMaxWorldSize ||
      outer * layout.spatial_parallel_size > kMaxWorldSize) {
    throw Error("wire",
                "layout " + plan::to_string(layout) + " has more than " +
                    std::to_string(kMaxWorldSize) + " ranks",
                "install the same build on every node");
  }
  return layout;
}

wire::ActivationPolicy to_wire(plan::ActivationPolicy policy) {
  switch (policy) {
    case plan::ActivationPolicy::kKeep:
      return wire::ACTIVATION_POLICY_KEEP;
    case plan::ActivationPolicy::kLean:
      return wire::ACTIVATION_POLICY_LEAN;
    case plan::ActivationPolicy::kRecompute:
      return wire::ACTIVATION_POLICY_RECOMPUTE;
    case plan::ActivationPolicy::kOffload:
      return wire::ACTIVATION_POLICY_OFFLOAD;
  }
  HEADROOM_CHECK(
      false, "activation policy " + std::to_string(static_cast<int>(policy)));
}

plan::ActivationPolicy policy_from_wire(int policy) {
  switch (policy) {
    case wire::ACTIVATION_POLICY_KEEP:
      return plan::ActivationPolicy::kKeep;
    case wire::ACTIVATION_POLICY_LEAN:
      return plan::ActivationPolicy::kLean;
    case wire::ACTIVATION_POLICY_RECOMPUTE:
      return plan::ActivationPolicy::kRecompute;
    case wire::ACTIVATION_POLICY_OFFLOAD:
      return plan::ActivationPolicy::kOffload;
    default:
      throw bad_field("activation_policies", policy,
                      "this build does not know it");
  }
}

wire::Plan to_wire(const plan::Plan& plan) {
  wire::Plan message;
  *message.mutable_layout() = to_wire(plan.layout);
  switch (plan.backend) {
    case plan::Backend::kGloo:
      message.set_backend(wire::BACKEND_GLOO);
      break;
    case plan::Backend::kNccl:
      message.set_backend(wire::BACKEND_NCCL);
      break;
    case plan::Backend::kMpi:
      message.set_backend(wire::BACKEND_MPI);
      break;
    case plan::Backend::kAuto:
      HEADROOM_CHECK(false, "a plan's backend is decided before it is sent");
  }
  message.set_micro_batch_size(plan.micro_batch_size);
  message.set_batch_norm_group_size(plan.batch_norm_group_size);
  message.set_reason(plan.reason);
  message.set_zero_stage(plan.zero_stage);
  for (const int64_t layer : plan.stage_begins) message.add_stage_begins(layer);
  for (const plan::ActivationPolicy policy : plan.activation_policies) {
    message.add_activation_policies(to_wire(policy));
  }
  for (const int64_t bytes : plan.predicted_peak_bytes)
    message.add_predicted_peak_bytes(bytes);
  message.set_validation_images(plan.validation_images);
  for (const plan::PhaseBytes& rank : plan.predicted_phase_bytes) {
    wire::PhaseBytes* bytes = message.add_predicted_phase_bytes();
    bytes->set_start_up(rank.start_up);
    bytes->set_training(rank.training);
    bytes->set_validation(rank.validation);
    bytes->set_checkpoint(rank.checkpoint);
    bytes->set_host(rank.host);
  }
  return message;
}

plan::Plan from_wire(const wire::Plan& message) {
  plan::Plan plan;
  plan.layout = from_wire(message.layout());
  switch (message.backend()) {
    case wire::BACKEND_GLOO:
      plan.backend = plan::Backend::kGloo;
      break;
    case wire::BACKEND_NCCL:
      plan.backend = plan::Backend::kNccl;
      break;
    case wire::BACKEND_MPI:
      plan.backend = plan::Backend::kMpi;
      break;
    default:
      throw bad_field("backend", message.backend(),
                      "this build does not know it");
  }
  plan.micro_batch_size =
      checked_samples("micro_batch_size", message.micro_batch_size());
  plan.batch_norm_group_size =
      checked_samples("batch_norm_group_size", message.batch_norm_group_size());
  plan.reason = message.reason();
  if (message.zero_stage() < 0 || message.zero_stage() > plan::kMaxZeroStage) {
    throw bad_field(
        "zero_stage", message.zero_stage(),
        "ZeRO has the stages 0 to " + std::to_string(plan::kMaxZeroStage));
  }
  plan.zero_stage = message.zero_stage();
  plan.stage_begins.assign(message.stage_begins().begin(),
                           message.stage_begins().end());
  if (const auto why = plan::stage_begins_error(
          plan.stage_begins, plan.layout.pipeline_parallel_size)) {
    throw Error("wire", "stage_begins: " + *why,
                "install the same build on every node");
  }
  plan.predicted_peak_bytes.assign(message.predicted_peak_bytes().begin(),
                                   message.predicted_peak_bytes().end());
  for (const wire::PhaseBytes& rank : message.predicted_phase_bytes()) {
    plan.predicted_phase_bytes.push_back({rank.start_up(), rank.training(),
                                          rank.validation(), rank.checkpoint(),
                                          rank.host()});
  }
  check_predictions(plan);
  if (message.validation_images() != 0) {
    plan.validation_images =
        checked_samples("validation_images", message.validation_images());
  }
  if (message.activation_policies_size() > plan::kMaxLayers) {
    throw bad_field(
        "activation_policies", message.activation_policies_size(),
        "a model has at most " + std::to_string(plan::kMaxLayers) + " layers");
  }
  for (const int policy : message.activation_policies()) {
    plan.activation_policies.push_back(policy_from_wire(policy));
  }
  return plan;
}

wire::Progress to_wire(const RunProgress& progress) {
  wire::Progress message;
  message.set_step(progress.step);
  message.set_num_steps(progress.num_steps);
  message.set_epoch(progress.epoch);
  message.set_num_epochs(progress.num_epochs);
  message.set_step_in_epoch(progress.step_in_epoch);
  message.set_steps_per_epoch(progress.steps_per_epoch);
  message.set_box(progress.box);
  message.set_obj(progress.obj);
  message.set_cls(progress.cls);
  message.set_images_per_second(progress.images_per_second);
  message.set_measured_peak_bytes(progress.measured_peak_bytes);
  message.set_predicted_peak_bytes(progress.predicted_peak_bytes);
  message.set_phase(valid_utf8(progress.phase));
  message.set_image_height(progress.image_height);
  message.set_image_width(progress.image_width);
  message.set_quiet_ms(progress.quiet_ms);
  message.set_median_step_ms(progress.median_step_ms);
  return message;
}

RunProgress from_wire(const wire::Progress& message) {
  RunProgress progress;
  progress.step = message.step();
  progress.num_steps = message.num_steps();
  progress.epoch = message.epoch();
  progress.num_epochs = message.num_epochs();
  progress.step_in_epoch = message.step_in_epoch();
  progress.steps_per_epoch = message.steps_per_epoch();
  progress.box = message.box();
  progress.obj = message.obj();
  progress.cls = message.cls();
  progress.images_per_second = message.images_per_second();
  progress.measured_peak_bytes = message.measured_peak_bytes();
  progress.predicted_peak_bytes = message.predicted_peak_bytes();
  progress.phase = message.phase();
  progress.image_height = message.image_height();
  progress.image_width = message.image_width();
  progress.quiet_ms = message.quiet_ms();
  progress.median_step_ms = message.median_step_ms();
  return progress;
}

void check_assignment(const wire::Assignment& message) {
  switch (message.action()) {
    case wire::ACTION_WAIT:
    case wire::ACTION_EXIT:
      return;
    case wire::ACTION_RUN:
    case wire::ACTION_SAVE_AND_EXIT:
      break;
    default:
      throw bad_field("action", message.action(),
                      "this build does not know it");
  }
  if (message.stamp().generation() < 1) {
    throw bad_field("generation", 0, "generations count from 1");
  }
  if (message.world_size() < 1 || message.world_size() > kMaxWorldSize) {
    throw bad_field(
        "world_size", message.world_size(),
        "a run has 1 to " + std::to_string(kMaxWorldSize) + " ranks");
  }
  if (message.rank() < 0 || message.rank() >= message.world_size()) {
    throw bad_field("rank", message.rank(),
                    "world_size is " + std::to_string(message.world_size()));
  }
  if (message.local_world_size() < 1 ||
      message.local_world_size() > message.world_size()) {
    throw bad_field("local_world_size", message.local_world_size(),
                    "world_size is " + std::to_string(message.world_size()));
  }
  if (message.local_rank() < 0 ||
      message.local_rank() >= message.local_world_size()) {
    throw bad_field(
        "local_rank", message.local_rank(),
        "local_world_size is " + std::to_string(message.local_world_size()));
  }
  const plan::ParallelLayout layout = from_wire(message.plan().layout());
  if (layout.world_size() != message.world_size()) {
    throw bad_field("world_size", message.world_size(),
                    "the plan's layout " + plan::to_string(layout) + " has " +
                        std::to_string(layout.world_size()) + " ranks");
  }
}

}  // namespace headroom::wire
