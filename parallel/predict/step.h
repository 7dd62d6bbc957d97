// Simulates the memory of one rank's step: its micro-batches in schedule order,
// with the maps sent between stages (parallel/pipeline/executor.h, mailbox.h).
//
// A receive buffer is allocated one instruction before it is read. A sent
// buffer is held until a message arrives that the peer sent after posting the
// receive. With one stage, this is plain gradient accumulation.
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

// The 1F1B schedule of one stage.
std::vector<StepInstruction> stage_instructions(int stage, int num_stages,
                                                int64_t num_micro_batches);

struct StepRequest {
  SimulatedStage stage;  // the stage at `index`
  std::vector<int64_t> stage_begins = {0};
  int index = 0;  // position in the pipeline
  // One shape and one loss per micro-batch. If many micro-batches are equal,
  // num_stages + 1 of them are enough.
  std::vector<MicroBatchShape> micro_batches;
  std::vector<LossShape> losses;
};

struct StepMemory {
  int64_t peak_bytes = 0;
  int64_t kept_bytes = 0;  // bytes at the end of the first forward
};

StepMemory step_memory(const StepRequest& request);

// A part of a step, and the micro-batches' bytes in it.
enum class StepPart { kForward, kLoss, kBackward };
struct PartMemory {
  StepPart part = StepPart::kForward;
  int64_t layer = -1;         // -1: before the first layer (messages, images)
  int64_t kept_bytes = 0;     // bytes alive at the end of the part
  int64_t scratch_bytes = 0;  // bytes above kept_bytes at the part's peak
};

// The parts of the step in order, layer by layer. The largest sum of kept and
// scratch bytes equals step_memory()'s peak.
std::vector<PartMemory> step_parts(const StepRequest& request);

// Allocates the step's buffers from `allocator`, which may hold other buffers.
// Returns whether there was room for all buffers.
bool replay_step(const StepRequest& request, CachingAllocator& allocator);

// Bytes of a micro-batch captured as a CUDA graph
// (worker/step/cuda_graph_runner.h). The graph permanently holds the peak of
// forward, loss and backward, and buffers for the input and the targets that
// are filled in place. `loss` has as many matches as these buffers have room
// for. REQUIRES: `stage` is the whole model.
int64_t captured_step_bytes(const SimulatedStage& stage,
                            const MicroBatchShape& shape,
                            const LossShape& loss);

}  // namespace headroom::predict
