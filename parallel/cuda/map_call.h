// MapCall: the checked arguments of one pass over a map
// (worker/kernels/map_kernels.h), in the form that the launchers of
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
#include "worker/kernels/map_kernels.h"

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

  void set_statistics(const at::Tensor& statistics);
  void set_affine(const at::Tensor& weight, const at::Tensor& bias,
                  const layers::ActivationFunction& activation);
  void set_gradient(const at::Tensor& gradient);
  void set_means(const at::Tensor& means);  // may be undefined
  void set_result(const at::Tensor& result);

  void write_sums(const at::Tensor& sums);
  void write_statistics(double epsilon,
                        const kernels::StatisticsResult& result);
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
  // [groups, 2, C] double, or nullptr if undefined.
  double* group_values(const at::Tensor& values) const;
  const void* affine_values(const at::Tensor& values) const;
  void choose_groups(size_t first, BatchNormArguments& arguments,
                     SumTargets& targets) const;

  const at::Tensor y_;
  const kernels::MapGroups groups_;
  BatchNormArguments arguments_;
  SumTargets targets_;
};

// A call with only sums [groups, 2, C], which ranks have added up.
class SumsCall {
 public:
  SumsCall(const at::Tensor& sums, kernels::MapGroups groups);

  void write_statistics(double epsilon,
                        const kernels::StatisticsResult& result);
  void write_means(const at::Tensor& means);

  // Calls launch(sums, targets, number of groups, channels).
  template <typename Launch>
  void run(const Launch& launch) {
    for (size_t first = 0; first < groups_.size(); first += kMostGroups) {
      SumTargets targets = targets_;
      const int count = choose_groups(first, targets);
      launch(from_ + static_cast<int64_t>(first) * 2 * channels_, targets,
             count, channels_);
    }
  }

 private:
  int choose_groups(size_t first, SumTargets& targets) const;

  const kernels::MapGroups groups_;
  const int64_t channels_;
  const double* from_;
  SumTargets targets_;
};

}  // namespace headroom::cuda
