// pass_completion: the one order in which a pass's two kinds of collectives
// come, and how a rank that failed carries out the rest of it.
//
// Exchanges (halo rows, batch-norm sums) and collectives of whole rows (ZeRO's
// gathers and scatters) are lists of their own, which know nothing of each
// other. Both say which row of the model they belong to, and rows run in order:
//
//   forward    per row, ascending:   gather, exchanges
//   backward   per row, descending:  gather, exchanges, scatter
//
// The scatter comes last since a row's last gradient is that of its first
// convolution, whose backward ends with its exchange; autograd adds a gradient
// up before it goes on.
//
// Threads: the thread that runs the step. Errors: as what is completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/pipeline/schedule.h"
#include "parallel/spatial/completable_exchange.h"
#include "parallel/zero/collective_list.h"

namespace headroom::step {

// One entry of the merged list.
enum class PassEntry : uint8_t { kExchange, kRowCollective };

// `exchange_rows[i]`: the row of exchange i; `collective_rows[i]` that of
// collectives[i]. Pure.
std::vector<PassEntry> merged_pass(
    pipeline::Instruction::Kind kind, const std::vector<int64_t>& exchange_rows,
    const std::vector<zero::RowCollective>& collectives,
    const std::vector<int64_t>& collective_rows);

// The rest of a pass of both kinds, from wherever this rank stopped: after
// `num_collectives` of rows. `entries`: its merged list.
void complete_merged(const std::vector<PassEntry>& entries,
                     spatial::CompletableExchange& exchange,
                     size_t num_collectives,
                     const std::function<void()>& complete_next_collective);

// After an exception autograd's queue keeps nodes, and what they saved, until
// the thread's next backward.
void release_failed_graph();

}  // namespace headroom::step
