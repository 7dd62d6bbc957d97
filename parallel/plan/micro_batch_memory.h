// micro_batch_memory: what one micro-batch's forward and backward take on one
// rank, by going through them without a tensor.
//
// The rows are taken apart into the operators that the worker runs, and for
// each of them is known what it allocates, what autograd keeps for its
// backward, and which gradients are worked on in place. So the peak is found
// where it really is, not bounded from sums:
//
//   convolution block   keeps its input and its convolution's output;
//                       backward: both, the gradient (in place if nobody else
//                       has it), the input's and the weight's gradient
//   addition            hands one gradient to both sides, shared
//   concatenation       hands out slices, each of which keeps the whole
//   max-pool            keeps its input and 8-byte indices
//   two gradients meet  the first is added to in place if nobody else has it
//
// A recomputed row keeps its inputs and is run again before its backward.
//
// It knows maps, parameters, images, heads and matches; not what a library
// allocates for itself below 64 KiB, nor tensors per channel.
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace headroom {

// A row of the model, as far as memory goes.
struct MemoryRow {
  enum class Kind { kConv, kC3, kSppf, kUpsample, kConcat, kDetect };
  Kind kind = Kind::kConv;
  std::vector<int> inputs;  // earlier rows; -1: the image
  int64_t channels = 0;     // of its output; Detect: of all levels together
  int64_t stride = 1;       // pixels per cell of its output
  int64_t kernel = 1;       // Conv
  int64_t repeats = 0;      // C3
  bool shortcut = false;    // C3
  int64_t parameters = 0;
  int64_t norm_channels = 0;  // of its batch norms
  int64_t parameter_tensors = 0;
};

struct MicroBatchRequest {
  std::vector<MemoryRow> rows;  // of the whole model
  int64_t begin = 0;            // the rank's rows [begin, end)
  int64_t end = 0;
  int64_t samples = 1;
  int64_t groups = 1;        // batch-norm groups among them
  int64_t image_height = 0;  // rows of pixels that the rank has
  int64_t image_width = 0;
  int64_t image_channels = 3;
  bool split_image = false;  // rows around a map come from other ranks
  int64_t element_bytes = 4;
  int64_t num_classes = 80;
  int64_t matches = 0;  // rows of the loss, all levels
  // One per row of the model; empty: every row keeps.
  std::vector<ActivationPolicy> policies;
  int zero_stage = 0;  // 2: a row's gradients, 3: its parameters come and go
  int num_shards = 1;
};

struct MicroBatchMemory {
  int64_t image_bytes = 0;     // of the network's input, kept
  int64_t kept_bytes = 0;      // from the forward's end to its backward,
                               // images included
  int64_t received_bytes = 0;  // maps of earlier stages
  int64_t sent_bytes = 0;      // maps that later stages read
  int64_t forward_peak_bytes = 0;
  int64_t peak_bytes = 0;  // of forward and backward, kept_bytes included
};

MicroBatchMemory micro_batch_memory(const MicroBatchRequest& request);

}  // namespace headroom
