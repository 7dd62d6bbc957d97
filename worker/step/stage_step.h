// StageStep: forward and backward of this rank's part of a global batch.
//
// The pipeline's executor calls it: it runs the layers of this rank's stage,
// micro-batch by micro-batch, and on the last stage the loss. With one stage
// that is plain gradient accumulation.
//
// Ownership: borrows all constructor arguments.
// Threads: the training thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/memory_model.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/loss/detection_loss.h"
#include "worker/loss/place_loss.h"
#include "worker/memory/memory_ladder.h"
#include "worker/optim/lr_schedule.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/fault_injection.h"
#include "worker/step/parallel_context.h"
#include "worker/step/step_commit.h"
#include "worker/step/teacher.h"
#include "worker/step/training_state.h"

namespace headroom::step {

// Step options of a run; they stay the same in all steps.
struct StepOptions {
  loss::LossGains gains;
  loss::PlaceGains place_gains = {};  // of a head without anchors
  optim::ScheduleOptions schedule;
  plan::Plan plan;
  bool skip_non_finite = false;
  FaultInjection* faults = nullptr;  // borrowed; may be null
  int64_t host_memory_limit = 0;     // most bytes to offload; 0 means no limit
  bool may_offload = true;           // although the plan does not
  // Assigns targets to micro-batches that are smaller than the plan's. If it
  // is not set, micro-batches are never made smaller.
  loader::AssignTargets assign = {};
  // The run's request to the memory model; if it is not set, no memory is
  // predicted.
  std::optional<predict::MemoryRequest> memory = {};
  Teacher* teacher = nullptr;  // borrowed; may be null
  DevicePrefetcher::FollowingBatch following = {};
  bool captures_micro_batches = false;  // use CUDA graphs (cuda_graph_runner.h)
  predict::LabelBound labels = {};      // bounds the targets of captured graphs
  // The memory settings that this rank had reached in an earlier generation
  // under the same plan.
  memory::LadderState ladder = {};
  // Ranks compare their weights before every step of this multiple, and before
  // the first one of a generation; 0: never.
  int64_t weight_digest_every = 0;
};

class StageStep final : public pipeline::StageWork {
 public:
  // This rank's part of a step.
  struct Part {
    const loader::Batch* batch = nullptr;
    // The batch's own micro-batches, or smaller ones that tile them.
    std::vector<plan::SampleRange> micro_batches;
    loss::GlobalCounts counts;  // counts of the global batch
    double loss_scale = 1;      // factor of the loss in backward

    const plan::SampleRange& samples(int64_t micro_batch) const {
      return micro_batches[static_cast<size_t>(micro_batch)];
    }
    bool is_last(int64_t micro_batch) const {
      return micro_batch + 1 == static_cast<int64_t>(micro_batches.size());
    }
    // Whether smaller micro-batches replace the batch's own micro-batches.
    bool is_cut() const { return micro_batches != batch->micro_batches; }
  };

  StageStep(const StepOptions& options, TrainingState& state,
            const collectives::Mesh& mesh, ParallelContext& context);

  // Called before the executor runs a step. `part.batch` must outlive the step.
  // `graphs` captures the micro-batches; null if none is captured.
  void begin(Part part, CudaGraphRunner* graphs, StepCommit& commit);
  // Copies the inputs of the next step's first forward() into the graph's
  // buffers. REQUIRES: graphs in begin().
  void prepare(const Part& next);

  const pipeline::StageRoutes& routes() const { return routes_; }
  // Double [kStepItems] on the state's device: this rank's share of the global
  // batch's items, summed over the step's micro-batches.
  const at::Tensor& items() const { return items_; }

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override;
  std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) override;
  void before_backward(int64_t micro_batch, bool is_last) override;

  // The newest pass that began, "forward" or "backward".
  std::string failed_phase() const;

 private:
  model::StepContext context_of(const Part& part, int64_t micro_batch);
  // The network's input. `into`, if given, is filled and returned.
  at::Tensor images_of(const Part& part, int64_t micro_batch,
                       const std::optional<at::Tensor>& into = {});
  CudaGraphRunner::MicroBatch for_graph(const Part& part, int64_t micro_batch);
  // Targets and counts of this rank's rows of the images. For a loss on a
  // device, the host packs the targets and converts the counts to scales.
  std::vector<loss::LevelTargets> targets_of(
      const Part& part, int64_t micro_batch,
      const std::vector<loss::HeadSize>& heads) const;
  loss::GlobalCounts counts_of(const Part& part,
                               const std::vector<loss::HeadSize>& heads) const;
  loss::PackedTargets packed_targets_of(
      const Part& part, int64_t micro_batch,
      const std::vector<loss::HeadSize>& heads) const;
  at::Tensor scales_of(const Part& part,
                       const std::vector<loss::HeadSize>& heads) const;
  std::vector<loss::HeadSize> head_sizes(const Part& part,
                                         int64_t micro_batch) const;
  // The matches per level for which a captured micro-batch has room. Without a
  // graph 0, which means as much room as the targets need.
  int64_t match_capacity(const Part& part) const;
  at::Tensor loss_of(int64_t micro_batch, const std::vector<at::Tensor>& heads,
                     const std::vector<at::Tensor>& teacher);
  std::vector<loss::PlaceMaps> place_maps_of(
      const std::vector<at::Tensor>& heads) const;
  // Null if this rank has whole images.
  loss::GatherParts gather_rows() const;
  loss::PlaceLossRule place_rule() const;
  at::Tensor place_loss_of(int64_t micro_batch,
                           const std::vector<at::Tensor>& heads);
  at::Tensor loss_on_device(const std::vector<at::Tensor>& heads,
                            const loss::PackedTargets& targets,
                            const at::Tensor& scales);

  // Called before each pass over the layers. Prepares the gradients for it.
  void begin_pass(const pipeline::Instruction& instruction);

  const StepOptions& options_;
  TrainingState& state_;
  const collectives::Mesh& mesh_;
  ParallelContext& context_;
  const pipeline::StageRoutes routes_;
  DevicePrefetcher images_;
  const at::Tensor items_;
  const at::Tensor losses_;  // the losses among the items
  // The following members belong to the newest step.
  Part part_;
  CudaGraphRunner* graphs_ = nullptr;
  StepCommit* commit_ = nullptr;
  std::optional<pipeline::Instruction> begun_;
};

}  // namespace headroom::step
