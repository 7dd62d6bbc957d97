// ParallelContext: turns a plan into the StepContexts that layers run in.
//
// Layers do not use ranks. A context contains the samples of each batch-norm
// group in the micro-batch, the ranks that share the group's statistics, this
// rank's rows of a split image, and the runner of the layers.
//
// Ownership: borrows the mesh and the runner; the contexts that it returns
// borrow it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"
#include "parallel/spatial/halo_exchange.h"
#include "worker/model/layer.h"
#include "worker/model/step_context.h"

namespace headroom::step {

// A global batch. Its batch-norm groups depend only on its size
// (parallel/plan/batch_split.h).
struct GroupRequest {
  plan::BatchCut cut;
  int64_t global_size = 0;            // samples of this global batch
  int64_t smallest_map_elements = 0;  // height x width at the largest stride
};

// The groups that have samples in a micro-batch of one rank.
struct StepGroups {
  std::vector<BatchNormGroup> groups;
  int64_t first = 0;  // the first one's place among the groups of the batch
};

// `micro_batch` in samples of the global batch; may be empty.
// REQUIRES: `micro_batch` is one of part_of() for some rank.
StepGroups groups_of(const GroupRequest& request,
                     plan::SampleRange micro_batch);

// The image rows that this rank works on, as a function of the image height.
// Throws Error if there are more ranks than blocks of rows.
std::function<plan::SampleRange(int64_t height)> own_rows(
    const collectives::Mesh& mesh, int64_t max_stride);

class ParallelContext {
 public:
  // `runner` may be null.
  ParallelContext(const plan::Plan& plan, int64_t global_batch_size,
                  int64_t max_stride, collectives::Mesh& mesh,
                  model::LayerExecutor* runner);

  // Forgets the communicators of an earlier generation, and makes those with
  // which batches of these numbers of whole images exchange statistics; other
  // batches make theirs in their first training(). Collective over the
  // replicas.
  void begin_generation(const std::vector<int64_t>& batches, int64_t height,
                        int64_t width);

  // Sets the runner of later contexts; may be null.
  void set_runner(model::LayerExecutor* runner) { runner_ = runner; }

  // Sets the global batch of later contexts: whole images [samples, C, height,
  // width].
  void set_batch(int64_t samples, int64_t height, int64_t width);

  // `batch_norm_sums` as in StepContext. Collective over the replicas.
  model::StepContext training(plan::SampleRange micro_batch,
                              const at::Tensor& batch_norm_sums);
  model::StepContext evaluation();

  // Number of batch-norm groups in the whole batch.
  int64_t num_groups() const;
  // Where this rank's `local_rows` rows of a map are in the whole map.
  RowWindow window(int64_t local_rows) const;
  bool images_are_split() const { return halo_.has_value(); }
  // Whether ranks exchange statistics in training on the global batch; false
  // before the first training() on one of its size.
  bool exchanges_statistics() const;

 private:
  GroupRequest request_of(int64_t samples, int64_t height, int64_t width) const;
  // How this rank exchanges statistics in training on such a batch; null if all
  // groups are its own.
  StatisticsExchange* exchange_of(const GroupRequest& batch);
  std::unique_ptr<StatisticsExchange> make_exchange(const GroupRequest& batch);

  const plan::BatchCut cut_;
  const int64_t max_stride_;
  collectives::Mesh& mesh_;
  model::LayerExecutor* runner_;
  GroupRequest groups_;
  std::optional<spatial::CommunicatorHaloExchange> halo_;
  // By the number of samples, and whether the smallest map has one cell, which
  // joins groups.
  std::map<std::pair<int64_t, bool>, std::unique_ptr<StatisticsExchange>>
      exchanges_;
};

}  // namespace headroom::step
