// row_costs: what each row of a stage takes under each activation policy, for
// who chooses policies row by row.
//
//   kept   bytes that the row leaves from the end of the forward to its
//          backward
//   peak   bytes beside what the rows before it keep, at the fullest moment of
//          the row's forward or backward, its own kept bytes included
//
// So a stage with policies p needs about
//
//   max over rows r of ( kept(0, p0) + … + kept(r-1, p(r-1)) + peak(r, pr) )
//
// and of several micro-batches in flight each adds its kept bytes. Each policy
// is gone through with all rows under it: a map that two rows of different
// policies share counts for the row that made it. What a search over these
// numbers finds is to be confirmed by estimate_rank_memory(), which is exact
// for any mixture.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/predict/stage.h"

namespace headroom::predict {

struct RowCost {
  int64_t kept_bytes = 0;
  int64_t peak_bytes = 0;
};

// Of one row, by static_cast<size_t>(ActivationPolicy).
using RowCosts = std::array<RowCost, 4>;

// Of rows [stage.begin, stage.end), under the policies that the stage has.
std::vector<RowCost> planned_row_costs(const Stage& stage,
                                       const Extents& extents,
                                       const LossShape& loss);

// The same under each; stage.policies is not read. The head's row
// includes the loss, the first row the images.
std::vector<RowCosts> row_costs(Stage stage, const Extents& extents,
                                const LossShape& loss);

}  // namespace headroom::predict
