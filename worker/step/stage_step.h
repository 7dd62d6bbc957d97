// StageStep: forward and backward of one rank's part of one global batch.
//
// What the pipeline's executor runs: the layers of this rank's stage,
// micro-batch by micro-batch, and on the last stage the loss. One stage is
// plain gradient accumulation.
//
// Ownership: borrows everything; made anew for each step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/skip_routes.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/loss/detection_loss.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/fault_injection.h"
#include "worker/step/parallel_context.h"
#include "worker/step/teacher.h"
#include "worker/step/training_state.h"

namespace headroom::step {

class StageStep final : public pipeline::StageWork {
 public:
  struct Parts {
    const loader::Batch& batch;
    // The batch's own, or smaller ones that tile them.
    const std::vector<plan::SampleRange>& micro_batches;
    const loader::AssignTargets& assign;  // assigns targets of smaller ones
    const loss::GlobalCounts& counts;
    const loss::LossGains& gains;
    const pipeline::StageRoutes& routes;
    const collectives::Mesh& mesh;
    ParallelContext& context;
    TrainingState& state;
    DevicePrefetcher& images;
    // Double [3] on the state's device: this rank's share of the global batch's
    // box, obj, cls is added to it.
    at::Tensor items;
    double loss_scale = 1;  // the loss is multiplied by it for backward
    FaultInjection* faults = nullptr;     // null: none
    Teacher* teacher = nullptr;           // null: none
    CudaGraphRunner* captured = nullptr;  // null: all is run as it is
    // What a captured micro-batch tells of the step's end (CudaGraphRunner);
    // null: graphs end no step.
    std::function<at::Tensor(bool is_last)> end_numbers = {};
    // Room for matches of a level of a micro-batch on a device; 0: for those
    // there are.
    int64_t match_capacity = 0;
  };

  explicit StageStep(const Parts& parts);

  // Gives the device what the step's first forward() begins with, as far as its
  // graph has a place for it. REQUIRES: parts.captured.
  void prepare();

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override;
  std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) override;
  void before_backward(int64_t micro_batch, bool is_last) override;

  // The pass that was begun last: "forward" or "backward".
  std::string failed_phase() const;

 private:
  const plan::SampleRange& samples_of(int64_t micro_batch) const {
    return parts_.micro_batches[static_cast<size_t>(micro_batch)];
  }
  bool is_last(int64_t micro_batch) const {
    return micro_batch + 1 == static_cast<int64_t>(parts_.micro_batches.size());
  }
  model::StepContext context_of(int64_t micro_batch) const;
  // The network's input, in `into` where that is given.
  at::Tensor images_of(int64_t micro_batch,
                       const std::optional<at::Tensor>& into = {}) const;
  CudaGraphRunner::Inputs inputs_of(int64_t micro_batch) const;
  std::vector<loss::LevelTargets> targets_of(int64_t micro_batch) const;
  // The same for a device, and the numbers of the step, on the host.
  loss::PackedTargets packed_targets_of(
      int64_t micro_batch, const std::vector<loss::HeadSize>& heads) const;
  at::Tensor scales_of(const std::vector<loss::HeadSize>& heads) const;
  std::vector<loss::HeadSize> head_sizes(int64_t micro_batch) const;
  at::Tensor loss_of(int64_t micro_batch, const std::vector<at::Tensor>& heads,
                     const std::vector<at::Tensor>& teacher);
  at::Tensor loss_on_device(const std::vector<at::Tensor>& heads,
                            const loss::PackedTargets& targets,
                            const at::Tensor& scales);

  // Tells the gradients which pass over the layers begins.
  void begin_pass(const pipeline::Instruction& instruction);

  Parts parts_;
  std::optional<pipeline::Instruction> begun_;
};

}  // namespace headroom::step
