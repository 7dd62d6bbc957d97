// The arena's kernels for g++; see launch.h for what launchers promise.
#pragma once

#include "parallel/cuda/kernels/arena_body.h"

extern "C" {
// `pieces` lies on the device.
int headroom_arena_step_float(
    headroom::ArenaRule rule, const headroom::ArenaArrays<float>* arrays,
    const headroom::ArenaCoefficients<float>* coefficients,
    const headroom::ArenaPiece* pieces, int64_t num_pieces, void* stream);
int headroom_arena_step_double(
    headroom::ArenaRule rule, const headroom::ArenaArrays<double>* arrays,
    const headroom::ArenaCoefficients<double>* coefficients,
    const headroom::ArenaPiece* pieces, int64_t num_pieces, void* stream);
}
