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
// Errors: any exception leaves the step at once, CommunicationError and
// c10::OutOfMemoryError among them. The step's messages are then void, and the
// ranks have to be connected anew: nothing is completed for the peers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/skip_routes.h"

namespace headroom::pipeline {

// While it lives, backwards of the thread that made it
// run on that thread. LibTorch would give each device a thread of its own; but
// scopes of the thread (memory categories, policies, the stream) hold only
// here, and ranks that are threads must not wait for each other.
class BackwardOnThisThread {
 public:
  explicit BackwardOnThisThread(bool is_cpu)
      : state_(c10::AutogradState::get_tls_state()),
        before_(state_.get_multithreading_enabled()) {
    if (!is_cpu) state_.set_multithreading_enabled(false);
  }
  ~BackwardOnThisThread() { state_.set_multithreading_enabled(before_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  c10::AutogradState& state_;
  const bool before_;
};

// The ends of autograd's graph of one stage.
//
//   map ~~> [received_map] -> layers of the stage -> [sent_map] ~~> map
//   gradient <~~ <-                                          <- <~~ gradient
//
// Nodes of their own, since autograd would keep more than it needs:
//   - a leaf tensor lives until backward is done; the node keeps where its
//     gradient goes and not the map, so that a map which no operation saves
//     (one that is only concatenated, as most skips are) is freed;
//   - a gradient that is handed to the engine stays until backward is done; the
//     node gives it away, so that the first operation may overwrite it.

struct MapGradient {
  at::Tensor value;
};

// `map` with a history that ends in `gradient`: backward fills it with the sum
// over all readers in this stage, or leaves it undefined if nothing that was
// differentiated reads the map.
at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient);

// A scalar whose backward, with whatever gradient, continues in `map`'s with
// the value of `gradient`, which it takes away. Undefined if `map` wants no
// gradient.
at::Tensor sent_map(const at::Tensor& map,
                    std::shared_ptr<MapGradient> gradient);

// What one stage computes, as the executor sees it: the executor knows
// instructions, maps and ranks, but not what a map means, how a micro-batch is
// computed or how gradients of parameters are collected.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // The forward of one micro-batch. `received`: the maps of
  // StageRoutes::received, in that order, part of autograd's graph; released
  // as soon as they are read. Returns the maps of StageRoutes::sent, in
  // that order; the last stage one scalar, the loss, or nothing where the
  // schedule has no backward.
  virtual std::vector<at::Tensor> forward(int64_t micro_batch,
                                          std::vector<at::Tensor> received) = 0;

  // Sizes of the map of `layer`, which this stage receives or sends. Follows
  // from the batch alone: both ends of a message must agree without talking.
  virtual std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) = 0;

  // Right before backward; `is_last`: no other backward follows in this step.
  virtual void before_backward(int64_t micro_batch, bool is_last) = 0;
};

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
