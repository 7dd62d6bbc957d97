// PipelineExecutor: runs the instructions of one stage on one rank.
//
//   F m   receive the maps that the stage reads from others -> forward ->
//         send the maps that other stages read, directly to each of them
//   B m   receive a map's gradients from all its readers, sum them in stage
//         order -> backward -> send the gradients of the received maps
//
// With the schedule kForwardOnly (evaluation) there is no B and no gradient.
//
// The messages of a step, their order and their sizes depend only on the
// schedule, the routes and StageWork::map_sizes. The receives of an instruction
// are posted while the previous one computes; sends do not block (mailbox.h).
//
// Between its forward and its backward, a micro-batch holds only the tensors
// that autograd saved; after its backward it holds nothing.
//
// Errors: any exception ends the step at once, CommunicationError and
// c10::OutOfMemoryError included. The messages of the step are then invalid and
// the ranks must be connected again: no message is completed for the peers.
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

// In its scope, backwards started by the current thread run on this thread. By
// default LibTorch runs them on one thread per device; but the current thread's
// scopes (memory categories, policies, the stream) do not apply there, and
// ranks that are threads must not wait for each other.
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

// Autograd nodes at the ends of one stage's graph.
//
//   map ~~> [received_map] -> layers of the stage -> [sent_map] ~~> map
//   gradient <~~ <-                                          <- <~~ gradient
//
// Special nodes are used because plain autograd would keep more memory:
//   - a leaf tensor is kept until backward is done. received_map keeps only
//     the destination of the gradient, so a map that no operation saves (most
//     skips are only concatenated) is freed early;
//   - a gradient passed to the engine is kept until backward is done. sent_map
//     moves its gradient out, so the first operation may overwrite it.

struct MapGradient {
  at::Tensor value;
};

// Returns `map` with a history that ends in `gradient`. Backward sets
// `gradient->value` to the sum of the gradients of all readers in this stage,
// or leaves it undefined if no differentiated operation reads the map.
at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient);

// Returns a scalar. Its backward ignores the incoming gradient and continues in
// `map`'s history with the value of `gradient`, which it moves out. Returns an
// undefined tensor if `map` requires no gradient.
at::Tensor sent_map(const at::Tensor& map,
                    std::shared_ptr<MapGradient> gradient);

// The computation of one stage. The executor handles instructions, maps and
// ranks; StageWork defines the meaning of maps, computes a micro-batch, and
// collects the parameters' gradients.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // Runs the forward of one micro-batch. `received` are the maps of
  // StageRoutes::received, in that order, as part of autograd's graph; release
  // each after its last use. Returns the maps of StageRoutes::sent, in that
  // order; on the last stage one scalar, the loss, or an empty list if the
  // schedule has no backward.
  virtual std::vector<at::Tensor> forward(int64_t micro_batch,
                                          std::vector<at::Tensor> received) = 0;

  // The sizes of the map of `layer`, which this stage receives or sends. They
  // must depend on the batch only, because both ends of a message compute them
  // without communication.
  virtual std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) = 0;

  // Called right before a backward. `is_last`: this backward is the last one of
  // the step.
  virtual void before_backward(int64_t micro_batch, bool is_last) = 0;
};

class PipelineExecutor {
 public:
  // `stages`: one rank per stage, in order. `map_options`: type and device of
  // all maps.
  PipelineExecutor(collectives::Communicator& stages, PipelineSchedule kind,
                   StageRoutes routes, const at::TensorOptions& map_options);

  // Runs one step. Collective; all stages pass the same number.
  void run(int64_t num_micro_batches, StageWork& work);

 private:
  collectives::Communicator& stages_;
  const PipelineSchedule kind_;
  const StageRoutes routes_;
  const at::TensorOptions map_options_;
  // Allocated here, because a step allocates nothing before its first map.
  const at::Tensor one_;
};

}  // namespace headroom::pipeline
