// StageStep: forward and backward of one rank's part of one global batch.
//
// What the pipeline's executor runs: the rows of this rank's stage, micro-batch
// by micro-batch, and on the last stage the loss. One stage is plain gradient
// accumulation.
//
// Ownership: borrows everything; made anew for each step.
// Threads: the thread that runs the step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/pipeline/stage_work.h"
#include "worker/captured_rows.h"
#include "worker/data/batch.h"
#include "worker/data/loader_options.h"
#include "worker/fault_injection.h"
#include "worker/image_feed.h"
#include "worker/loss/detection_loss.h"
#include "worker/rank_context.h"
#include "worker/teacher.h"
#include "worker/training_state.h"

namespace headroom {

class StageStep final : public StageWork {
 public:
  struct Parts {
    const Batch& batch;
    // Of the batch, or smaller ones that tile them.
    const std::vector<SampleRange>& micro_batches;
    const AssignTargets& assign;  // for smaller ones
    const GlobalCounts& counts;
    const LossGains& gains;
    const StageRoutes& routes;
    const Mesh& mesh;
    RankContext& context;
    TrainingState& state;
    ImageFeed& images;
    // Double [3], beside the state: this rank's share of box, obj, cls of the
    // global batch is added to it.
    at::Tensor items;
    double loss_scale = 1;  // the loss is multiplied by it for backward
    FaultInjection* faults = nullptr;  // null: none
    Teacher* teacher = nullptr;        // null: none
    CapturedRows* captured = nullptr;  // null: rows are run as they are
  };

  explicit StageStep(const Parts& parts);

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override;
  std::vector<int64_t> map_sizes(int64_t micro_batch, int row) override;
  void before_backward(int64_t micro_batch, bool is_last) override;
  void complete(const Instruction& instruction) override;

  // Where it failed: "forward" or "backward".
  std::string failed_phase() const;

 private:
  const SampleRange& samples_of(int64_t micro_batch) const {
    return parts_.micro_batches[static_cast<size_t>(micro_batch)];
  }
  std::vector<LevelTargets> targets_of(int64_t micro_batch) const;
  at::Tensor loss_of(int64_t micro_batch, const std::vector<at::Tensor>& heads,
                     const std::vector<at::Tensor>& teacher);

  // Tells the gradients which pass over the rows begins.
  void begin_pass(const Instruction& instruction);

  Parts parts_;
  std::optional<Instruction::Kind> failed_in_;
  std::optional<Instruction> begun_;
};

}  // namespace headroom
