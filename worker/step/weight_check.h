// Finds ranks that compute wrong: ranks with copies of the same state compare
// their copies, because every one of them computes the same bits.
//
//   WeightDigest   64 bits of all buffers of which this rank has every element.
//                  Those are the same on all ranks of a pipeline stage:
//                    ZeRO 0     all buffers
//                    ZeRO 1, 2  weights and running statistics
//                    ZeRO 3     running statistics; slices are on one rank
//                               only, and are not checked
//   judge_weights  which ranks are wrong: those that differ from the largest
//                  group of equal ranks. Pure.
//   WeightsDiffer  thrown on every rank of the run if any two ranks differ.
//                  A wrong rank has spoilt the sums of all, so every rank goes
//                  back to a state in which all ranks were equal.
//
// Not found: a rank that went wrong since the last comparison, if a generation
// is formed meanwhile that takes its state from it (state_restore.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "worker/step/training_state.h"

namespace headroom::step {

// The digest of flat buffers of 4- or 8-byte elements on one device: a sum of
// all 32-bit words, each times an odd factor that depends on its place. Whole
// numbers are summed, so the order does not matter, and a single changed word
// always changes the sum. The host waits for the device. Needs 4 MiB.
uint64_t digest_of(std::span<const at::Tensor> buffers);

uint64_t weight_digest(const TrainingState& state);

struct WeightJudgement {
  std::vector<int> wrong;  // differ from the largest group of equal ranks
  // Differ although no group of equal ranks is the largest, as always with two
  // ranks: some of them are wrong.
  std::vector<int> undecided;
  // "rank 1 has other weights than ranks 0, 2"; "" if all are equal.
  std::string reason;
  bool are_equal() const { return wrong.empty() && undecided.empty(); }
};

// `digests`: of every rank; nullopt if a rank sent none, which is not compared.
// Ranks of a stage follow each other (parallel/plan/layout.h).
WeightJudgement judge_weights(
    const std::vector<std::optional<uint64_t>>& digests, int num_stages);

class WeightsDiffer : public std::runtime_error {
 public:
  // `committed_steps`: those of the state that was compared.
  WeightsDiffer(WeightJudgement judgement, int rank, int64_t committed_steps);

  const WeightJudgement& judgement() const { return judgement_; }
  bool is_wrong() const { return is_wrong_; }          // this rank
  bool is_undecided() const { return is_undecided_; }  // this rank

 private:
  WeightJudgement judgement_;
  bool is_wrong_, is_undecided_;
};

// The steps at which ranks differed and none was outvoted. The ranks compute
// the same steps again once, because a bit may have changed by chance.
class UndecidedDifferences {
 public:
  // Adds one. Returns whether the newest one before is at most `within_steps`
  // committed steps older: then a rank computes wrong, and the run ends.
  bool is_repeated(int64_t committed_steps, int64_t within_steps);

 private:
  std::optional<int64_t> newest_;
};

// Compares the state now. Throws WeightsDiffer. Collective.
void require_equal_weights(const TrainingState& state, collectives::Mesh& mesh);

}  // namespace headroom::step
