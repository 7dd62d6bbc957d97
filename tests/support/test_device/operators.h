// LibTorch's operators on the test device (dispatch key PrivateUse1). The CPU's
// kernels compute them on the device's own memory, so every result equals the
// CPU's bit for bit. They run in the order of the current stream (streams.h).
// The host continues meanwhile; it waits only for numbers, for sizes that
// depend on values, and for copies from and to memory that is not page-locked.
//
// As in CUDA, an operator that mixes tensors of the device and of the host is
// refused, except for scalars without dimensions. Convolutions are those of
// LibTorch for the CPU, and allocate a workspace as a card's library does.
// Views and copies are implemented by the device itself.
//
// Threads: any; each thread computes its own operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom {

// Registers operators, allocator and device guard. May be called again.
void install_test_device();
// Registers only the guard (device_guard.cpp).
void install_test_guard();

// A CPU tensor of the same sizes, strides and bytes as the device's tensor, for
// a kernel that runs later (test_graph.h, do_or_remember). It does not keep the
// memory alive.
at::Tensor kernel_view(const at::Tensor& tensor);

// A CPU tensor for immediate use: waits for the device's stream first.
at::Tensor reachable(const at::Tensor& tensor);

inline c10::Device test_device(int index = 0) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace headroom
