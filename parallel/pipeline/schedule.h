// The order in which each stage of a pipeline runs forwards and backwards.
//
// A stage can run the forward of a micro-batch after the previous stages have,
// and its backward after the later stages have. Example with three stages and
// four micro-batches; a forward or backward takes one time slot:
//
//   1F1B (Narayanan et al., arXiv:1806.03377): a stage runs ahead by as many
//   forwards as there are stages behind it, then does one backward per
//   forward. Stage s never holds more than num_stages - s micro-batches.
//
//     stage 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
//     stage 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
//     stage 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
//
//   GPipe (Huang et al., arXiv:1811.06965): a stage runs all forwards, then all
//   backwards. This takes the same time, but holds all micro-batches at once.
//
//     stage 0  F0 F1 F2 F3 .  .  B0 B1 B2 B3
//     ...
//
//   Forward only, for evaluation: no activations are kept.
//
// Backwards run in the order of micro-batches, so that gradients are summed in
// one order. With one stage, 1F1B is plain gradient accumulation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::pipeline {

enum class PipelineSchedule { k1F1B, kGPipe, kForwardOnly };

struct Instruction {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;
  bool operator==(const Instruction&) const = default;
};

// "F3" or "B0".
std::string to_string(const Instruction& instruction);

// The instructions of one stage; the last one is for the last micro-batch.
// REQUIRES: 0 <= stage < num_stages, num_micro_batches > 0.
std::vector<Instruction> schedule(PipelineSchedule kind, int num_stages,
                                  int64_t num_micro_batches, int stage);

// The largest number of micro-batches that are between forward and backward on
// the stage at one time.
// REQUIRES: as schedule().
int64_t max_in_flight(PipelineSchedule kind, int num_stages,
                      int64_t num_micro_batches, int stage);

// Draws the whole schedule as above: a line per stage, a column per time slot.
std::string draw_schedule(PipelineSchedule kind, int num_stages,
                          int64_t num_micro_batches);

}  // namespace headroom::pipeline
