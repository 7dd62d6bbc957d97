// LibTorch's operators on the test device: dispatch key PrivateUse1, computed
// by the CPU's kernels on the device's own memory, so that every result has the
// CPU's bits, in the order of the current stream (streams.h): the host
// continues meanwhile, and waits only for numbers, for sizes that depend on
// values and for copies from and to memory that is not page-locked.
//
// An operator that mixes tensors of the device with tensors of the host is
// refused, but for scalars without dimensions, as CUDA does. Convolutions are
// LibTorch's for the CPU, and take a workspace as a card's library does; views
// and copies are the device's own.
//
// Threads: any; each computes by itself.
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
