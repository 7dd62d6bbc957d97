// The memory of one rank's step: its micro-batches in the order in which its
// stage runs them, with the maps on their way between stages
// (parallel/pipeline/executor.h, mailbox.h).
//
// A message's memory is there from one instruction before it is taken; what is
// sent stays until something arrives that the peer sent after posting the
// receive. One stage is plain gradient accumulation.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/predict/loss.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

struct StepInstruction {
  bool is_forward = true;
  int64_t micro_batch = 0;
  bool operator==(const StepInstruction&) const = default;
};

// 1F1B.
std::vector<StepInstruction> stage_instructions(int stage, int num_stages,
                                                int64_t num_micro_batches);

struct StepRequest {
  SimulatedStage stage;  // this rank's; begin and end are those of `index`
  std::vector<int64_t> stage_begins = {0};
  int index = 0;  // the stage's place in the pipeline
  // One shape and one loss per micro-batch. Where many are alike a few suffice:
  // one more than there are stages.
  std::vector<MicroBatchShape> micro_batches;
  std::vector<LossShape> losses;
};

struct StepMemory {
  int64_t peak_bytes = 0;
  int64_t kept_bytes = 0;  // bytes at the end of the first forward
};

StepMemory step_memory(const StepRequest& request);

// A part of a step, and the bytes of its micro-batches in that part.
enum class StepPart { kForward, kLoss, kBackward };
struct PartMemory {
  StepPart part = StepPart::kForward;
  int64_t layer = -1;      // -1: the messages and images before the first one
  int64_t kept_bytes = 0;  // bytes that are alive at its end
  int64_t scratch_bytes = 0;  // bytes beyond those at its fullest
};

// The parts of the step in their order, layer by layer. The largest sum of kept
// and scratch bytes is step_memory()'s peak.
std::vector<PartMemory> step_parts(const StepRequest& request);

// The same on a device: its buffers are asked of `allocator`, which may hold
// others. Was there room for all?
bool replay_step(const StepRequest& request, CachingAllocator& allocator);

// Bytes of a micro-batch that was captured as a graph of the device
// (worker/step/cuda_graph_runner.h). The graph keeps what forward, loss and
// backward take at their fullest, and all the time its buffers for the
// network's input and the targets, which are filled in place. `loss`: with as
// many matches as there is room for. REQUIRES: the whole model.
int64_t captured_step_bytes(const SimulatedStage& stage,
                            const MicroBatchShape& shape,
                            const LossShape& loss);

}  // namespace headroom::predict
