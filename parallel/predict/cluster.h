// What a GPU offers a plan, on machines that need not be there. A compute
// capability of 8.0 is written 80.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::predict {

// Does LibTorch from PyPI hold code that this GPU can run? Its builds for CUDA
// 13 hold 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0; code runs on later minor versions
// of the same major one.
bool wheel_has_code_for(int compute_capability);

// "7.0".
std::string capability_text(int compute_capability);

// The memory of a GPU that tensors cannot have, for plans that are made without
// one: the context with what libraries load, the largest workspace of a
// convolution, the communication's buffers; and what the caching allocator
// cannot use. A run measures them (worker/memory/device_footprint.h).
inline constexpr int64_t kGpuContextBytes = int64_t{3} << 28;
inline constexpr int64_t kGpuWorkspaceBytes = int64_t{1} << 29;
inline constexpr int64_t kGpuCommunicationBytes = int64_t{1} << 28;
inline constexpr int64_t kGpuReserveBytes =
    kGpuContextBytes + kGpuWorkspaceBytes + kGpuCommunicationBytes;  // 1.5 GiB
inline constexpr int64_t kGpuSlackPercent = 10;  // of the card

// The bytes of a card that are left for tensors; at least 0.
int64_t tensor_budget(int64_t gpu_memory_bytes);

}  // namespace headroom::predict
