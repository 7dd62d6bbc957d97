// StageWork: what one stage of a pipeline computes, as the executor sees it.
//
// The executor knows instructions, maps and ranks; what a map means, how a
// micro-batch is computed and how gradients of parameters are collected is
// behind this interface.
//
// Threads: called by the thread that runs the executor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace headroom::pipeline {

class StageWork {
 public:
  virtual ~StageWork() = default;

  // The forward of one micro-batch. `received`: the maps of
  // StageRoutes::received, in that order, part of autograd's graph; let go of
  // here as soon as they are read. Returns the maps of StageRoutes::sent, in
  // that order; the last stage one scalar, the loss, or nothing where the
  // schedule has no backward.
  virtual std::vector<at::Tensor> forward(int64_t micro_batch,
                                          std::vector<at::Tensor> received) = 0;

  // Sizes of the map of `layer`, which this stage receives or sends. Follows
  // from the batch alone: both ends of a message must agree without talking.
  virtual std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) = 0;

  // Right before backward; `is_last`: no other backward follows in this step.
  virtual void before_backward(int64_t micro_batch, bool is_last) = 0;

  // After this rank ran out of memory: in place of the instruction that failed
  // and of each that follows, finishes what collectives of its own it has not
  // issued yet. Must not allocate more than a step does at its start.
  virtual void complete(const Instruction& instruction) = 0;
};

}  // namespace headroom::pipeline
