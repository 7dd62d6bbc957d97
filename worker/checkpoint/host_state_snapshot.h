// HostStateSnapshot: a copy in host memory of a committed state, or of a part
// of it. It outlives the generation that made it.
//
// A part is a range of one layer of a flat buffer, identified by the buffer's
// name and the layer's number in the model's table. Every layout can cut its
// own pieces from such ranges (state_restore.h). pack() turns a snapshot into
// one message for another rank.
//
// Ownership: parts_of() refers to the state's own memory; hold_state() owns
// copies; unpack() shares memory with its message. Memory limits for tensors do
// not count these copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/step/training_state.h"

namespace headroom::checkpoint {

struct HeldPart {
  std::string buffer;
  int64_t layer = 0;  // number in the model's table
  int64_t begin = 0;  // offset in the layer, in elements
  at::Tensor values;  // the elements of the range, flat
};

struct HostStateSnapshot {
  step::TrainingCounters counters;
  std::string newest_line;  // last line of steps.jsonl; "" if unknown
  std::vector<HeldPart> parts;
};

// This rank's parts of the state, without copying and without padding.
HostStateSnapshot parts_of(step::TrainingState& state,
                           const std::string& newest_line);

// A copy of this rank's parts in host memory.
HostStateSnapshot hold_state(step::TrainingState& state,
                             const std::string& newest_line);

// pack() writes a snapshot into one flat uint8 tensor; unpack() reads it back,
// with parts that are views of this tensor.
at::Tensor pack(const HostStateSnapshot& held);
HostStateSnapshot unpack(const at::Tensor& message);

}  // namespace headroom::checkpoint
