// MapCall: the checked arguments of one pass over a map
// (worker/kernels/device_kernels.h), in the form that the launchers of
// kernels/launch.h take. No CUDA headers.
//
// A launch has at most kMostGroups groups, so a call may need several.
//
// Ownership: borrows the groups' span; holds its tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "parallel/cuda/kernels/launch.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::cuda {

// Throws Error if the kernels do not support the element type.
ElementType element_type(const at::Tensor& map);

bool is_channels_last(const at::Tensor& map);

// Elements between two adjacent pixels of a channels-last map or of a slice of
// its channels. Throws Error for any other map.
int64_t pixel_stride(const at::Tensor& map);

class MapCall {
 public:
  MapCall(const at::Tensor& y, kernels::MapGroups groups, int multiprocessors);
  // A pass over sums [groups, 2, C] that ranks have added up, without a map.
  MapCall(const at::Tensor& sums, kernels::MapGroups groups);

  void set_norm(const at::Tensor& statistics, const at::Tensor& weight,
                const at::Tensor& bias,
                const layers::ActivationFunction& activation);
  void set_gradient(const at::Tensor& gradient);
  void set_means(const at::Tensor& means);  // `means` may be undefined
  void set_result(const at::Tensor& result);

  void write_sums(const at::Tensor& sums);
  void write_statistics(double epsilon,
                        const kernels::StatisticsResult& result);
  void write_means(const at::Tensor& means);
  void write_gradients(const kernels::GradientSumsResult& result);

  // Calls launch(arguments, targets) for each launch in turn. The caller sets
  // `partial` and `arrivals`.
  template <typename Launch>
  void run(const Launch& launch) {
    for (size_t first = 0; first < groups_.size(); first += kMostGroups) {
      BatchNormArguments arguments = arguments_;
      SumTargets targets = targets_;
      choose_groups(first, arguments, targets);
      launch(arguments, targets);
    }
  }

 private:
  // The values of `groups` groups, [groups, 2, C] double, or nullptr if
  // undefined.
  double* group_values(const at::Tensor& values, size_t groups) const;
  double* group_values(const at::Tensor& values) const {
    return group_values(values, groups_.size());
  }
  void* affine_values(const at::Tensor& values) const;
  void check_like_map(const at::Tensor& other) const;
  void choose_groups(size_t first, BatchNormArguments& arguments,
                     SumTargets& targets) const;

  const at::Tensor y_;  // undefined if there are only sums
  const c10::Device device_;
  const kernels::MapGroups groups_;
  BatchNormArguments arguments_;
  SumTargets targets_;
};

}  // namespace headroom::cuda
