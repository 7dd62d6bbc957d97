// The flat buffer's kernels for g++; see launch.h for what launchers promise.
#pragma once

#include "parallel/cuda/kernels/flat_buffer_body.h"

extern "C" {
// `pieces` lies on the device.
int headroom_flat_buffer_step_float(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<float>* arrays,
    const headroom::cuda::FlatBufferCoefficients<float>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream);
int headroom_flat_buffer_step_double(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<double>* arrays,
    const headroom::cuda::FlatBufferCoefficients<double>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream);
}
