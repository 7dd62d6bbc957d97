// Trainer: the training step as a transaction.
//
//   forward and backward of the rank's part   nothing lasting changes
//   vote      one small all-reduce (step_reports.h): losses, gradient norm; ok
//             or not finite; stop?
//   commit    accumulate, running statistics, ledger, and on an optimizer step
//             clip, optimizer, EMA: no allocation, no communication but ZeRO's
//             gather of new parameters
//
// A rank that trains alone on a device has only itself to ask: the device
// decides by what the host and its own numbers say, and commits, in the same
// captured graph as backward where there is one. The host reads it afterwards.
//
// A rank that runs out of memory moves on its ladder. Alone it tries the step
// again at once. With peers it leaves the generation, as if it were lost: they
// fail in their next exchange, all ranks form the next generation, and there the
// step is tried again. Nothing has been lost, and the state is that of the step
// before.
//
// Ownership: borrows everything it is given; keeps the gradient hooks.
// Errors: CommunicationError when a peer is lost or left; Error otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/memory_shortfall.h"
#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/vote.h"
#include "parallel/pipeline/executor.h"
#include "parallel/plan/plan.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/loss/detection_loss.h"
#include "worker/memory/memory_ladder.h"
#include "worker/optim/lr_schedule.h"
#include "worker/step/apply_plan.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/fault_injection.h"
#include "worker/step/parallel_context.h"
#include "worker/step/stage_step.h"
#include "worker/step/step_prediction.h"
#include "worker/step/step_reports.h"
#include "worker/step/teacher.h"
#include "worker/step/training_state.h"

namespace headroom::step {

// What a step left behind; if it was voted on, the same on every rank but for
// `events`.
struct StepResult {
  data_parallel::Verdict verdict;
  bool committed = false;
  // This rank ran out of memory and did not vote: its message. The step cannot
  // be tried again before begin_generation(), or at all by a lone rank.
  std::string out_of_memory;
  bool optimizer_stepped = false;
  double loss = 0, box = 0, obj = 0, cls = 0;  // the global batch's
  double gradient_norm = 0;          // the loss as it is, not as it was scaled
  std::optional<double> loss_scale;  // set in float16
  bool lowered_scale = false;        // the update was skipped with it
  optim::StepSettings settings;
  std::vector<int64_t> measured_peak_bytes;  // each rank's, last attempt
  // The prediction for the same attempt; 0 where there is none: micro-batches
  // had to be cut, or a device met the first convolution of a shape.
  std::vector<int64_t> predicted_peak_bytes;
  // What each rank holds after the attempt has released what it needed: the
  // state and what else lives between steps. A commit allocates nothing.
  std::vector<int64_t> live_bytes;
  int64_t attempt = 1;  // the one that counts, from 1
  // What happened on this rank, a message each: attempts that did not fit, a
  // rung taken back, injected faults, more memory than predicted.
  std::vector<memory::StepEvent> events;
};

class Trainer {
 public:
  struct Options {
    loss::LossGains gains;
    optim::ScheduleOptions schedule;
    plan::Plan plan;
    bool skip_non_finite = false;
    FaultInjection* faults = nullptr;        // borrowed; null: none
    int64_t host_memory_limit = 0;  // the limit of offloaded bytes; 0: none
    // Assigns targets again where micro-batches are cut to smaller ones than
    // the plan's; without it they are never cut.
    loader::AssignTargets assign = {};
    // What the run's memory is predicted from; none: nothing is predicted.
    std::optional<predict::MemoryRequest> memory = {};
    Teacher* teacher = nullptr;  // borrowed; null: none
    DevicePrefetcher::FollowingBatch following = {};
    bool captures_micro_batches = false;  // a device can (cuda_graph_runner.h)
    // The bound of what they have room for.
    predict::LabelBound labels = {};
    // That of an earlier generation under the same plan.
    memory::LadderState ladder = {};
  };

  Trainer(Options options, TrainingState& state, collectives::Mesh& mesh);

  // Takes over the rungs that all ranks share, and drops what a failed step has
  // left here. Returns the lowest rank that has nothing leaner left, if any:
  // under this plan the step cannot be done. Collective; called at the start of
  // every generation, also of one that keeps this trainer.
  std::optional<int> begin_generation();

  // One step over `batch`, this rank's part of global batch `batch.step`.
  // `requests` tells at the vote what this rank is asked to do after this step;
  // null: nothing.
  // If the result is not committed, the state is that before the step.
  struct Requests {
    bool stop = false;        // end the run
    bool leave = false;       // end the generation
    bool save = false;        // all ranks end afterwards with their agent
    bool checkpoint = false;  // training goes on meanwhile
  };
  using AskForRequests = std::function<Requests()>;
  StepResult train_step(const loader::Batch& batch,
                        const AskForRequests& requests);

  // The rung of this rank, which outlives the trainer.
  const memory::LadderState& ladder() const { return ladder_; }
  void set_validation_parts(int64_t parts) { ladder_.validation_parts = parts; }
  // What this rank's newest failure was short of.
  const MemoryShortfall& shortfall() const { return shortfall_; }

  // Frees the captured graphs before something else needs their memory; the
  // next steps capture anew.
  void release_graphs();

 private:
  // Forward, backward, vote and commit; false where this rank ran out of memory.
  bool attempt_step(const loader::Batch& batch, const AskForRequests& requests,
                    StepResult& result);
  // Nothing where this rank ran out of memory.
  std::optional<data_parallel::Outcome> forward_and_backward(
      const loader::Batch& batch, const loss::GlobalCounts& counts,
      StepResult& result);
  StageStep::Parts step_parts(const loader::Batch& batch,
                              const std::vector<plan::SampleRange>& parts,
                              const loss::GlobalCounts& counts,
                              const StepResult& result,
                              CudaGraphRunner* captured);
  // The batch after that one; null where it is not there yet.
  const loader::Batch* following(const loader::Batch& batch) const;
  // Gives the device what the next step begins with, where this one has been
  // given to it to its end.
  void prepare_following(const loader::Batch& batch, const StepResult& result);
  // This rank ran out of memory: decides what its next attempt does
  // differently.
  void note_failure(const std::string& phase, const std::string& failure,
                    StepResult& result);
  // Drops what failed, and frees memory that nothing needs any more.
  void make_room();
  // Peak bytes of this attempt; 0 where they cannot be predicted.
  int64_t predict_memory(const loader::Batch& batch);
  data_parallel::Verdict vote(const loader::Batch& batch,
                              data_parallel::Outcome outcome,
                              const AskForRequests& requests,
                              StepResult& result);
  CommitArguments commit_arguments(const loader::Batch& batch,
                                   const StepResult& result) const;
  void commit(const loader::Batch& batch, StepResult& result);
  // The device's part of the vote, where it asks nobody else.
  bool device_decides() const {
    return state_.device_state() != nullptr && mesh_.world.size() == 1;
  }
  // What the step's end on a device is told, on the host.
  at::Tensor end_numbers(const loader::Batch& batch, const StepResult& result);
  // What this rank says of the step's numbers. The host waits for a device.
  data_parallel::Outcome end_step(const StepResult& result);
  bool scales_loss() const { return state_.map_type() == at::kHalf; }
  // Whether a gradient that is not finite may be the loss scale's doing.
  bool may_lower_scale() const;
  // Moves on the ladder as a commit allows.
  void note_commit(StepResult& result);
  void begin_fault(configs::Fault::Phase phase, int64_t step);
  void end_fault(StepResult& result);
  // Reports the first captured graph, a failed capture, and the first
  // micro-batch that has no room in it, once each.
  void note_capture(StepResult& result);
  void run_layers_by_policy();
  CudaGraphRunner* micro_batch_runner() const;  // null: none
  // Room for the matches of a level of a captured micro-batch.
  int64_t match_capacity(int64_t samples) const;
  std::vector<plan::SampleRange> micro_batches_of(
      const loader::Batch& batch) const;
  std::vector<int64_t> own_matches(const loader::Batch& batch) const;
  std::vector<int64_t> all_matches(const loader::Batch& batch);
  loss::GlobalCounts count_matches(const loader::Batch& batch);

  Options options_;
  TrainingState& state_;
  collectives::Mesh& mesh_;
  const pipeline::StageRoutes routes_;
  const plan::BatchCut cut_;
  // The policies of the layers at each rung of the ladder.
  const ActivationRungs policies_;
  const memory::LadderRungs rungs_;
  memory::LadderState ladder_;
  MemoryShortfall shortfall_;
  ParallelContext context_;
  DevicePrefetcher images_;
  std::unique_ptr<CudaGraphRunner> captured_;  // null: none
  // Whether the device committed the newest attempt.
  bool device_has_committed_ = false;
  int64_t match_capacity_ = 0;  // the newest captured step's
  bool said_capture_ = false, said_failed_capture_ = false,
       said_overfull_ = false;
  pipeline::PipelineExecutor executor_;
  std::optional<StepPrediction> prediction_;
  StepReports reports_;
  at::Tensor items_;    // The state's device holds this rank's box, obj, cls.
  at::Tensor matches_;  // each level's
  // The matches of each level in a step's whole global batch; step -1 stands
  // for no step.
  struct StepCounts {
    int64_t step = -1;
    std::vector<int64_t> matches = {};
  };
  StepCounts counts_, counts_ahead_;
};

}  // namespace headroom::step
