// A few training steps of a small model over a mesh, without loader and
// detection loss: only the operations on the training state.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/checkpoint/state_stream.h"
#include "worker/step/training_state.h"

namespace headroom::step {

struct ZeroRun {
  int ranks = 1;
  int spatial = 1;  // ranks of an image; here with own samples
  int zero_stage = 0;
  optim::OptimizerKind optimizer = optim::OptimizerKind::kSgd;
  int steps = 4;
  int64_t samples = 5;  // samples of the global batch
  int micro_batches = 2;
  int64_t accumulate = 1;
  int64_t freeze = 0;
  bool crowded = false;  // all samples but one on rank 0
};

inline plan::ParallelLayout zero_layout(const ZeroRun& run) {
  plan::ParallelLayout layout;
  layout.data_parallel_size = run.ranks / run.spatial;
  layout.spatial_parallel_size = run.spatial;
  return layout;
}

inline TrainingStateOptions zero_options(const ZeroRun& run,
                                         collectives::Mesh* mesh) {
  TrainingStateOptions options;
  options.num_classes = 2;
  options.scalar_type = at::kDouble;
  options.freeze = run.freeze;
  options.optimizer = run.optimizer;
  options.zero_stage = run.zero_stage;
  options.mesh = mesh;
  return options;
}

struct StepNumbers {
  double loss = 0, norm = 0;
};

inline at::Tensor image(int64_t step, int64_t sample) {
  return at::sin(at::arange(3 * 32 * 48, at::kDouble) * 0.37 +
                 static_cast<double>(7 * step + sample))
      .view({1, 3, 32, 48});
}

// The samples of one micro-batch of this rank; may be empty.
inline plan::SampleRange samples_of(const ZeroRun& run, int rank, int part) {
  plan::SampleRange share = plan::share_of(run.samples, run.ranks, rank);
  if (run.crowded && run.ranks > 1) {
    const int64_t first = run.samples - 1;
    share = rank == 0   ? plan::SampleRange{0, first}
            : rank == 1 ? plan::SampleRange{first, run.samples}
                        : plan::SampleRange{run.samples, run.samples};
  }
  const plan::SampleRange cut =
      plan::share_of(share.size(), run.micro_batches, part);
  return {share.begin + cut.begin, share.begin + cut.end};
}

// Runs forward and backward of one micro-batch, and returns its loss.
inline double run_micro_batch(const ZeroRun& run, TrainingState& state,
                              int64_t step, int rank, int part,
                              model::LayerExecutor* inner = nullptr) {
  const plan::SampleRange range = samples_of(run, rank, part);
  model::StepContext context;
  context.training = true;
  // Every sample is a batch-norm group, so that nothing spans ranks.
  at::Tensor images = at::empty({range.size(), 3, 32, 48}, at::kDouble);
  for (int64_t i = 0; i < range.size(); ++i) {
    context.groups.push_back({i, i + 1, 1, true});
    images[i].copy_(image(step, range.begin + i)[0]);
  }
  context.batch_norm_sums = state.batch_norm_sums();
  context.runner = state.layer_executor(inner);
  state.gradients().begin_forward();
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& head : state.model().forward(images, context)) {
    loss = loss + head.square().sum() / 1000;
  }
  state.gradients().begin_micro_batch(part + 1 == run.micro_batches);
  loss.backward();
  return loss.item<double>();
}

inline StepNumbers run_step(const ZeroRun& run, TrainingState& state,
                            collectives::Communicator& world, int64_t step,
                            model::LayerExecutor* inner = nullptr) {
  state.gradients().begin_step();
  state.batch_norm_sums().zero_();
  at::Tensor loss = at::zeros({1}, at::kDouble);
  for (int part = 0; part < run.micro_batches; ++part) {
    loss += run_micro_batch(run, state, step, world.rank(), part, inner);
  }
  std::vector<at::Tensor> extra = {state.batch_norm_sums(), loss};
  state.gradients().finish(extra);
  at::Tensor norm = at::full({1}, state.squared_norm_share(), at::kDouble);
  world.all_reduce(norm);
  CommitArguments commit;
  commit.step = step;
  commit.num_groups = run.samples;
  commit.gradient_norm = std::sqrt(norm.item<double>());
  commit.settings.accumulate = run.accumulate;
  commit.settings.lr = {0.02, 0.01, 0.01};
  commit.settings.momentum = 0.9;
  commit.weight_decay = 0.01;
  state.commit(commit);
  return {loss.item<double>(), commit.gradient_norm};
}

// Every tensor of the state by name, at rank 0.
inline std::map<std::string, at::Tensor> whole_state(TrainingState& state,
                                                     collectives::Mesh* mesh) {
  checkpoint::StateStream stream(mesh);
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    stream.add(buffer, buffer.name + ".");
  }
  stream.connect();
  std::map<std::string, at::Tensor> all;
  size_t next = 0;
  const std::vector<weights::TensorDescription> tensors = stream.tensors();
  stream.collect([&](const at::Tensor& tensor) {
    all[tensors.at(next++).name] = tensor.clone();
  });
  return all;
}

}  // namespace headroom::step
