#include "worker/memory/device_footprint.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/predict/time_model.h"

namespace headroom::memory {

std::optional<int64_t> bytes_taken(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after, int64_t more_segments) {
  if (!before || !after) return std::nullopt;
  const int64_t taken = after->own_bytes
                            ? *after->own_bytes - before->own_bytes.value_or(0)
                            : after->used_bytes - before->used_bytes;
  return std::max<int64_t>(0, taken - more_segments);
}

DeviceFootprint footprint_of_context(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after) {
  const std::optional<int64_t> taken = bytes_taken(before, after, 0);
  DeviceFootprint footprint;
  footprint.context = taken.value_or(predict::kGpuContextBytes);
  footprint.is_measured = taken.has_value();
  return footprint;
}

DeviceRoom device_room(int64_t memory_limit, int64_t card_bytes,
                       const std::optional<devices::DeviceUse>& use,
                       int64_t held) {
  int64_t left = card_bytes;
  if (use) {
    left -=
        std::max<int64_t>(0, use->used_bytes - use->own_bytes.value_or(held));
  }
  if (memory_limit > 0 && memory_limit <= left) {
    return {memory_limit, true, card_bytes};
  }
  return {left, false, card_bytes};
}

StepSegments step_segments(predict::MemoryRequest request,
                           const plan::MeshCoordinates& rank) {
  StepSegments segments;
  segments.planned = segments.leanest =
      predict::estimate_segments(request, rank);
  // The real sizes of a single step are valid only for the planned
  // micro-batches.
  request.step.reset();
  const plan::BatchCut cut = {
      request.global_batch_size, request.plan.layout.data_parallel_size,
      request.plan.micro_batch_size, request.plan.batch_norm_rule()};
  if (!plan::smaller_micro_batch_error(cut)) {
    request.plan.micro_batch_size = plan::smaller_micro_batches(cut).back();
  }
  for (const plan::ActivationPolicy policy :
       {plan::ActivationPolicy::kLean, plan::ActivationPolicy::kRecompute,
        plan::ActivationPolicy::kOffload}) {
    request.plan.activation_policies.assign(request.layers.size(), policy);
    const predict::SegmentEstimate leaner =
        predict::estimate_segments(request, rank);
    if (leaner.segment_bytes < segments.leanest.segment_bytes)
      segments.leanest = leaner;
  }
  return segments;
}

std::string describe(const predict::SegmentEstimate& segments,
                     const DeviceFootprint& footprint) {
  std::string text = "segments of " + format_bytes(segments.segment_bytes) +
                     " for " + format_bytes(segments.tensor_bytes) +
                     " of tensors, " + format_bytes(footprint.context) +
                     " of context" +
                     (footprint.is_measured ? "" : " (reserved, not measured)");
  text += ", " + format_bytes(footprint.communication) + " of communication";
  if (footprint.libraries > 0) {
    text += ", " + format_bytes(footprint.libraries) +
            " that libraries loaded when first used";
  }
  return text;
}

void require_room(int rank, const StepSegments& segments,
                  const DeviceFootprint& footprint, const DeviceRoom& room) {
  const int64_t needed = segments.leanest.segment_bytes + footprint.total();
  if (needed <= room.bytes) return;
  throw Error(
      "memory",
      cat("rank ", rank, " needs ", exact_bytes(needed),
          " of its device in a step however lean it is: ",
          describe(segments.leanest, footprint), "; but ",
          room.is_limit ? "--memory-limit is " + exact_bytes(room.bytes)
                        : exact_bytes(room.bytes) + " of its " +
                              format_bytes(room.card_bytes) +
                              " are left beside what others use"),
      (room.is_limit ? cat("use --memory-limit ", needed, " or more, or")
                     : std::string("free some of it, or use")) +
          " a smaller --batch or --img, or more --processes",
      ExitCode::kNoPlan);
}

}  // namespace headroom::memory
