// Halo: the rows around a map that lie with other ranks, while they are fetched
// and while their gradients go back.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

// Rows above and below together that a convolution fetches; 0 where images are
// whole.
int64_t rows_around(const MicroBatchShape& extents, int64_t kernel,
                    int64_t stride);

// The rows of `around` (above and below together) rows, kept apart.
Memory fetch_halo(const OpContext& context, const Map& map, int64_t around);

// The map with them: a copy.
Memory join_halo(const OpContext& context, const Map& map, int64_t around);

// The map's own part of the joined map's gradient; the rest goes back to whom
// it belongs.
Memory give_back_halo(const OpContext& context, const Map& map, int64_t around);

}  // namespace headroom::predict
