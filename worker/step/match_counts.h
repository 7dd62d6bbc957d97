// MatchCounts: the number of matches of each level in a step's global batch, by
// which the loss divides. A rank counts its own matches from the labels. The
// sum over all ranks usually arrives with the vote of the previous step
// (step_reports.h); otherwise it is exchanged when the step begins. Borrows the
// mesh.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "worker/data/loader/batch.h"
#include "worker/loss/detection_loss.h"

namespace headroom::step {

class MatchCounts {
 public:
  MatchCounts(collectives::Mesh& mesh, size_t num_levels)
      : mesh_(mesh),
        sums_(at::zeros({static_cast<int64_t>(num_levels)}, at::kLong)) {}

  // This rank's own counts. Only ranks of the last stage count matches, and of
  // the ranks that share an image only one. The other ranks return zeros.
  std::vector<int64_t> own(const loader::Batch& batch) const;
  // Collective if the batch's sum has not arrived yet.
  loss::GlobalCounts of(const loader::Batch& batch);
  // Stores the sum of a later step.
  void note(int64_t step, std::vector<int64_t> matches) {
    following_ = {step, std::move(matches)};
  }
  // Discards all sums, because some ranks may lack them. of() then sums again.
  void forget() { newest_ = following_ = {}; }

 private:
  struct Sums {
    int64_t step = -1;  // -1 before the first sums
    std::vector<int64_t> matches = {};
  };

  collectives::Mesh& mesh_;
  const at::Tensor sums_;  // buffer of the all-reduce
  Sums newest_, following_;
};

}  // namespace headroom::step
