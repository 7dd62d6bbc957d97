// memory_model: the bytes of tensors that each rank of a plan needs, item by
// item, without a tensor.
//
//   between steps   parameters, gradients, accumulated gradients, moments,
//                   averages, statistics: split as ZeRO splits them
//   in a step       what micro-batches in flight keep (with stages, 1F1B holds
//                   one more per stage that follows), and what the one at work
//                   needs beyond that at its fullest point
//   beside          maps on their way between stages, targets of the labels
//
// The sum is meant to be at least what the counting allocator measures, and
// little more. Items marked below as bounds are what a library or a backend
// allocates for itself.
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/micro_batch_memory.h"
#include "parallel/plan/plan.h"

namespace headroom {

struct MemoryRequest {
  std::vector<MemoryRow> rows;
  Plan plan;
  int64_t global_batch_size = 1;
  int64_t image_height = 640;  // of the network's input
  int64_t image_width = 640;
  int64_t image_channels = 3;
  int64_t element_bytes = 4;
  int64_t num_moments = 1;  // of the optimizer, per parameter
  int64_t num_classes = 80;
  int64_t boxes_per_image = 100;
};

struct MemoryEstimate {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t accumulated_gradients = 0;
  int64_t moments = 0;
  int64_t average = 0;
  int64_t statistics = 0;     // of batch norm, with their average and sums
  int64_t images = 0;         // of micro-batches in flight, as the network's
                              // input
  int64_t activations = 0;    // kept by micro-batches in flight, loss included
  int64_t transient = 0;      // of the micro-batch at work, at the peak
  int64_t communication = 0;  // maps between stages, ZeRO's slices
  int64_t targets = 0;        // of the labels
  int64_t workspace = 0;      // bound: what libraries take for themselves

  int64_t total() const {
    return parameters + gradients + accumulated_gradients + moments + average +
           statistics + images + activations + transient + communication +
           targets + workspace;
  }
  bool operator==(const MemoryEstimate&) const = default;
};

// Of the ranks of each stage; they differ by their share of the batch and of
// the image, and the largest is meant.
// REQUIRES: a plan whose batch split holds (why_groups_do_not_fit), image sizes
// in multiples of the largest stride.
std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request);

// The fullest stage's total.
int64_t largest_total(const std::vector<MemoryEstimate>& stages);

}  // namespace headroom
