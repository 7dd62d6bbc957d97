// MatchCounts: the matches of each level in a step's global batch, whose means
// the loss takes. A rank counts its own from the labels and needs the sum over
// all ranks before its loss. Most often the sum arrived with the vote of the
// step before (step_reports.h); otherwise it is exchanged when the step begins.
//
// Ownership: borrows the mesh. Threads: the one that trains.
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

  // This rank's share: 0 except on the last stage, and on one rank of those
  // that share an image.
  std::vector<int64_t> own(const loader::Batch& batch) const;
  // Collective if the batch's sum is not known yet.
  loss::GlobalCounts of(const loader::Batch& batch);
  // The sum of a later step has arrived.
  void note(int64_t step, std::vector<int64_t> matches) {
    following_ = {step, std::move(matches)};
  }
  // Ranks may differ in what they know: the next sum is exchanged anew.
  void forget() { newest_ = following_ = {}; }

 private:
  struct Sums {
    int64_t step = -1;  // -1: none
    std::vector<int64_t> matches = {};
  };

  collectives::Mesh& mesh_;
  const at::Tensor sums_;  // what is exchanged
  Sums newest_, following_;
};

}  // namespace headroom::step
