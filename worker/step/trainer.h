// Trainer: the training step as a transaction.
//
//   forward and backward of the rank's part   no lasting state changes
//   vote      one small all-reduce (step_reports.h): losses, gradient norm,
//             whether the step is finite, requests to stop
//   commit    accumulate, running statistics, and on an optimizer step clip,
//             optimizer, EMA: no allocation, no communication except ZeRO's
//             gather of new parameters (step_commit.h)
//
// Devices that split only the data vote and commit by themselves: both are
// queued behind the gradients, and the host reads the result afterwards.
//
// A rank that runs out of memory moves down its memory ladder. A rank without
// peers tries the step again at once. A rank with peers leaves the generation,
// as if it were lost: the peers fail in their next exchange, all ranks form the
// next generation and try the step again there. No committed work is lost,
// because the failed step has not changed the state.
//
// Ownership: borrows its constructor arguments; owns the gradient hooks.
// Errors: CommunicationError when a peer is lost or has left; Error otherwise.
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
#include "worker/data/loader/batch.h"
#include "worker/step/compute_timer.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/match_counts.h"
#include "worker/step/parallel_context.h"
#include "worker/step/rank_ladder.h"
#include "worker/step/stage_step.h"
#include "worker/step/step_commit.h"
#include "worker/step/step_prediction.h"
#include "worker/step/step_reports.h"
#include "worker/step/training_state.h"
#include "worker/step/weight_check.h"

namespace headroom::step {

// The result of a step. If the ranks voted on the step, all members except
// `events` are equal on every rank.
struct StepResult {
  data_parallel::Verdict verdict;
  bool committed = false;
  // If this rank ran out of memory and did not vote: the reason; otherwise "".
  // Ranks with peers try the step again after begin_generation(); a rank
  // without peers cannot.
  std::string out_of_memory;
  bool optimizer_stepped = false;
  double loss = 0;                   // of the global batch
  LossTerms terms = {};              // its terms, per image
  double gradient_norm = 0;          // of the gradient without the loss scale
  std::optional<double> loss_scale;  // set only in float16
  bool lowered_scale = false;  // the scale was lowered, the update skipped
  optim::StepSettings settings;
  std::vector<int64_t> measured_peak_bytes;  // per rank, in the last attempt
  // The predicted peak of the last attempt, per rank; 0 if there is none,
  // because micro-batches had to be cut or a device ran a convolution of a new
  // shape.
  std::vector<int64_t> predicted_peak_bytes;
  // Bytes per rank once the attempt's own tensors are freed: the state and all
  // other tensors kept between steps. A commit allocates nothing.
  std::vector<int64_t> live_bytes;
  int64_t attempt = 1;  // number of the last attempt, from 1
  // Not equal: some rank's weights were wrong before this step, so the states
  // of all ranks are wrong after it.
  WeightJudgement weights;
  // By rank; 0 if it is unknown (stragglers.h). Empty if it was not measured.
  std::vector<double> seconds_per_image;
  // This rank's messages: attempts that did not fit, moves back up the memory
  // ladder, injected faults, more memory used than predicted.
  std::vector<memory::StepEvent> events;
};

class Trainer {
 public:
  using Options = StepOptions;

  Trainer(Options options, TrainingState& state, collectives::Mesh& mesh);

  // Moves to the lowest rung of any rank, and drops the rest of a failed step.
  // If a rank has no lower rung left, the step cannot be done under this plan:
  // returns the lowest such rank. Collective; called at the start of every
  // generation, also if the trainer is kept.
  std::optional<int> begin_generation();

  // This rank's requests for the time after the step.
  struct Requests {
    bool stop = false;          // end the run
    bool leave = false;         // end the generation
    bool save = false;          // the agent is lost: save the state, then end
    bool checkpoint = false;    // write a checkpoint while training goes on
    bool time_is_over = false;  // validate and end the run
  };
  using AskForRequests = std::function<Requests()>;
  // Runs one step over `batch`, this rank's part of global batch `batch.step`.
  // `requests` is called at the vote; may be empty. If the result is not
  // committed, the step has not changed the state.
  StepResult train_step(const loader::Batch& batch,
                        const AskForRequests& requests);

  // This rank's place on the memory ladder. The caller keeps it for the next
  // trainer.
  const memory::LadderState& ladder() const { return ladder_.state(); }
  void set_validation_parts(int64_t parts) {
    ladder_.set_validation_parts(parts);
  }
  // Memory figures of this rank's newest failure.
  const MemoryShortfall& shortfall() const { return shortfall_; }

  // Frees the captured graphs before something else needs their memory; the
  // next steps capture them again.
  void release_graphs();

 private:
  // Returns false if this rank ran out of memory.
  bool attempt_step(const loader::Batch& batch, const AskForRequests& requests,
                    StepResult& result);
  // Returns nullopt if this rank ran out of memory.
  std::optional<data_parallel::Outcome> forward_and_backward(
      const loader::Batch& batch, const loss::GlobalCounts& counts,
      StepResult& result);
  // The batch after `batch`; null if it is not loaded yet.
  const loader::Batch* following(const loader::Batch& batch) const;
  void prepare_following(const loader::Batch& batch, const StepResult& result);
  bool can_time() const;
  void stop_timer();
  void note_time();
  void report_time(int64_t step);
  bool reports_time(int64_t step) const;
  void report_memory(const loader::Batch& batch, StepResult& result);
  double loss_factor_of(const loader::Batch& batch,
                        const StepResult& result) const;
  void note_failure(const std::string& phase, const std::string& failure,
                    StepResult& result);
  data_parallel::Verdict vote(const loader::Batch& batch,
                              data_parallel::Outcome outcome,
                              const AskForRequests& requests,
                              StepResult& result);
  void commit(const loader::Batch& batch, StepResult& result);
  CommitArguments commit_arguments(const loader::Batch& batch,
                                   const StepResult& result) const;
  bool scales_loss() const { return state_.map_type() == at::kHalf; }
  bool compares_weights(int64_t step) const;
  void begin_fault(configs::Fault::Phase phase, int64_t step);
  void end_fault(StepResult& result);
  void run_layers_by_policy();
  void connect_statistics();

  const Options options_;
  TrainingState& state_;
  collectives::Mesh& mesh_;
  RankLadder ladder_;
  MemoryShortfall shortfall_;
  ParallelContext context_;
  const std::unique_ptr<CudaGraphRunner> graphs_;  // may be null
  StageStep stage_;
  pipeline::PipelineExecutor executor_;
  std::optional<StepPrediction> prediction_;
  MatchCounts matches_;
  StepReports reports_;
  std::unique_ptr<StepCommit> commit_;
  bool has_compared_weights_ = false;  // in this generation
  std::optional<uint64_t> digest_;     // of the weights before the step
  std::optional<ComputeTimer> timer_;  // set while passes are timed
  int64_t timed_now_ = 0;              // images of this step's timed passes
  double timed_seconds_ = 0;           // since the last report
  int64_t timed_images_ = 0;
};

}  // namespace headroom::step
