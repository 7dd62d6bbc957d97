// PipelineExecutor: runs one stage's instructions on one rank.
//
//   F m   receive the maps that the stage reads from others -> forward ->
//         send the maps that others read, each straight to each reader
//   B m   receive a map's gradients from all its readers, sum them in stage
//         order -> backward -> send the gradients of the received maps
//
// With the schedule kForwardOnly there is no B and no gradient: evaluation.
//
// The messages of a step, their order and their sizes follow from the schedule,
// the routes and StageWork::map_sizes alone. The receives of an instruction are
// posted while the one before it computes; sends do not block (mailbox.h).
//
// Between its forward and its backward a micro-batch holds what autograd saved
// and nothing else; after its backward nothing.
//
// Ownership: borrows the communicator; holds nothing between steps.
// Threads: one.
// Errors: CommunicationError at once. c10::OutOfMemoryError and std::bad_alloc
// (of the host) after the step's remaining messages have been exchanged, zeros
// for those sent, and StageWork::complete was called for the remaining
// instructions: other stages end their step, whose result is void, and the
// communicator stays usable. Any other exception at once, an Error among them
// if there is no memory even for that: the rank's leaving frees its peers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>

#include "parallel/collectives/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/pipeline/stage_work.h"

namespace headroom::pipeline {

class PipelineExecutor {
 public:
  // `stages`: one rank per stage, in order. `map_options`: type and device of
  // all maps.
  PipelineExecutor(collectives::Communicator& stages, PipelineSchedule kind,
                   StageRoutes routes, const at::TensorOptions& map_options);

  // One step; every stage gives the same number. Collective.
  void run(int64_t num_micro_batches, StageWork& work);

 private:
  collectives::Communicator& stages_;
  const PipelineSchedule kind_;
  const StageRoutes routes_;
  const at::TensorOptions map_options_;
  const at::Tensor one_;  // a step allocates nothing before its first map
};

}  // namespace headroom::pipeline
