// The arena's kernels for g++; see launch.h for what launchers promise.
#pragma once

#include "parallel/cuda/kernels/arena_body.h"

extern "C" {
// `pieces` lies on the device.
int headroom_arena_step_float(
    headroom::cuda::ArenaRule rule,
    const headroom::cuda::ArenaArrays<float>* arrays,
    const headroom::cuda::ArenaCoefficients<float>* coefficients,
    const headroom::cuda::ArenaPiece* pieces, int64_t num_pieces, void* stream);
int headroom_arena_step_double(
    headroom::cuda::ArenaRule rule,
    const headroom::cuda::ArenaArrays<double>* arrays,
    const headroom::cuda::ArenaCoefficients<double>* coefficients,
    const headroom::cuda::ArenaPiece* pieces, int64_t num_pieces, void* stream);
}
