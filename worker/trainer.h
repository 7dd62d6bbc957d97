// Trainer: the training step as a transaction.
//
//   forward and backward of the rank's samples   nothing lasting changes
//   vote      one small all-reduce: ok, out of memory, not finite; stop?
//   commit    accumulate, running statistics, ledger, and on an optimizer step
//             clip, optimizer, EMA: no allocation; ZeRO gathers weights
//
// A rank that runs out of memory completes the step's collectives with zeros
// and says so in the vote; so all ranks learn of it together, nothing has been
// lost, and the state is that of the step before.
//
// Ownership: borrows everything it is given; keeps the gradient hooks.
// Threads: one.
// Errors: CommunicationError when a peer is lost; Error otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/data_parallel/vote.h"
#include "parallel/plan/plan.h"
#include "worker/data/batch.h"
#include "worker/loss/detection_loss.h"
#include "worker/optim/lr_schedule.h"
#include "worker/step_groups.h"
#include "worker/training_state.h"

namespace headroom {

// What a step left behind, the same on every rank.
struct StepResult {
  Verdict verdict;
  bool committed = false;
  bool optimizer_stepped = false;
  double loss = 0, box = 0, obj = 0, cls = 0;  // of the global batch
  double gradient_norm = 0;
  StepSettings settings;
  std::vector<int64_t> measured_peak_bytes;  // per rank
};

class Trainer {
 public:
  struct Options {
    LossGains gains;
    ScheduleOptions schedule;
    Plan plan;
    bool skip_non_finite = false;
  };

  // Collective: makes the communicators of the step.
  Trainer(Options options, TrainingState& state, Communicator& communicator);

  // One step over `batch`, this rank's part of global batch `batch.step`.
  // `stop_requested`: this rank was asked to end the run after this step.
  // If the result is not committed, the state is that before the step.
  StepResult train_step(const Batch& batch, bool stop_requested);

 private:
  struct Attempt {
    Outcome outcome = Outcome::kOk;
    std::string reason;
  };

  GlobalCounts count_matches(const Batch& batch);
  Attempt forward_and_backward(const Batch& batch, const GlobalCounts& counts);
  // Of the accumulated gradient with this step's; the same on every rank.
  double global_norm();
  // The batch-norm groups that micro-batch `part` of the global batch sees.
  GroupRequest group_request(const Batch& batch);
  StepContext step_context(const Batch& batch, SampleRange part);

  Options options_;
  TrainingState& state_;
  Communicator& communicator_;
  std::unique_ptr<Communicator> statistics_communicator_;
  CommunicatorExchange exchange_;
  // Travels behind the last gradient bucket: box, obj, cls, then each rank's
  // peak bytes.
  at::Tensor reports_;
};

}  // namespace headroom
