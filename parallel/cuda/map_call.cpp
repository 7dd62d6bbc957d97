#include "parallel/cuda/map_call.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cuda {

ElementType element_type(const at::Tensor& map) {
  switch (map.scalar_type()) {
    case at::kDouble:
      return ElementType::kFloat64;
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kHalf:
      return ElementType::kFloat16;
    default:
      HEADROOM_CHECK(
          false, std::string("a map of ") + c10::toString(map.scalar_type()));
  }
}

namespace {

std::string shape_text(const at::Tensor& tensor) {
  return "[" +
         joined(tensor.sizes(), ", ",
                [](int64_t size) { return std::to_string(size); }) +
         "]";
}

}  // namespace

bool is_channels_last(const at::Tensor& map) {
  return map.dim() == 4 && map.is_contiguous(at::MemoryFormat::ChannelsLast);
}

int64_t pixel_stride(const at::Tensor& map) {
  const int64_t stride = map.size(3) > 1   ? map.stride(3)
                         : map.size(2) > 1 ? map.stride(2)
                         : map.size(0) > 1 ? map.stride(0)
                                           : map.size(1);
  const bool is_slice =
      (map.size(1) == 1 || map.stride(1) == 1) &&
      (map.size(3) == 1 || map.stride(3) == stride) &&
      (map.size(2) == 1 || map.stride(2) == stride * map.size(3)) &&
      (map.size(0) == 1 || map.stride(0) == stride * map.size(3) * map.size(2));
  HEADROOM_CHECK(map.numel() == 0 || is_slice,
                 "a gradient " + shape_text(map) +
                     " that is no slice of a channels-last map");
  return stride;
}

namespace {

void check_like(const at::Tensor& y, const at::Tensor& other) {
  HEADROOM_CHECK(other.sizes() == y.sizes() && other.device() == y.device() &&
                     other.scalar_type() == y.scalar_type(),
                 shape_text(other) + " beside a map " + shape_text(y));
}

// [groups, 2, C] double; nullptr if undefined.
double* checked_group_values(const at::Tensor& values, size_t groups,
                             int64_t channels, const at::Device& device) {
  if (!values.defined()) return nullptr;
  HEADROOM_CHECK(
      values.scalar_type() == at::kDouble && values.is_contiguous() &&
          values.device() == device &&
          values.numel() == static_cast<int64_t>(groups) * 2 * channels,
      cat(shape_text(values), " beside ", groups, " groups of ", channels,
          " channels"));
  return values.mutable_data_ptr<double>();
}

void set_statistics_targets(double epsilon,
                            const kernels::StatisticsResult& result,
                            size_t groups, int64_t channels,
                            const at::Device& device, SumTargets& targets) {
  targets.epsilon = epsilon;
  targets.statistics =
      checked_group_values(result.statistics, groups, channels, device);
  targets.running =
      checked_group_values(result.running, /*groups=*/1, channels, device);
}

// Sets the targets' values for one launch. Returns its number of groups.
int choose_targets(kernels::MapGroups groups, size_t first, int64_t channels,
                   SumTargets& targets) {
  const int count =
      static_cast<int>(std::min<size_t>(kMostGroups, groups.size() - first));
  targets.counted = 0;
  for (int g = 0; g < count; ++g) {
    const kernels::MapGroup& group = groups[first + static_cast<size_t>(g)];
    targets.values[g] = group.values;
    if (group.counts_here) targets.counted |= uint64_t{1} << g;
  }
  const int64_t skipped = static_cast<int64_t>(first) * 2 * channels;
  for (double** to : {&targets.sums, &targets.statistics, &targets.means}) {
    if (*to != nullptr) *to += skipped;
  }
  targets.adds_gradients |= first > 0;
  return count;
}

}  // namespace

MapCall::MapCall(const at::Tensor& y, kernels::MapGroups groups,
                 int multiprocessors)
    : y_(y), groups_(groups) {
  HEADROOM_CHECK(is_channels_last(y),
                 "a map " + shape_text(y) + " that is not channels-last");
  int64_t end = 0;
  for (const kernels::MapGroup& group : groups) {
    HEADROOM_CHECK(group.end >= end, "groups of samples in another order");
    end = group.end;
  }
  HEADROOM_CHECK(end == y.size(0),
                 cat("groups of ", end, " samples of ", y.size(0)));
  arguments_.type = element_type(y);
  arguments_.channels = y.size(1);
  arguments_.gradient_stride = y.size(1);
  arguments_.y = y.const_data_ptr();
  arguments_.multiprocessors = multiprocessors;
}

double* MapCall::group_values(const at::Tensor& values) const {
  return checked_group_values(values, groups_.size(), y_.size(1), y_.device());
}

const void* MapCall::affine_values(const at::Tensor& values) const {
  const auto type = y_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  HEADROOM_CHECK(values.numel() == y_.size(1) && values.is_contiguous() &&
                     values.device() == y_.device() &&
                     values.scalar_type() == type,
                 shape_text(values) + " beside a map " + shape_text(y_));
  return values.const_data_ptr();
}

void MapCall::set_statistics(const at::Tensor& statistics) {
  arguments_.statistics = group_values(statistics);
}

void MapCall::set_affine(const at::Tensor& weight, const at::Tensor& bias,
                         const layers::ActivationFunction& activation) {
  arguments_.activation = activation;
  arguments_.weight = affine_values(weight);
  arguments_.bias = affine_values(bias);
}

void MapCall::set_gradient(const at::Tensor& gradient) {
  check_like(y_, gradient);
  arguments_.gradient = gradient.const_data_ptr();
  arguments_.gradient_stride = pixel_stride(gradient);
}

void MapCall::set_means(const at::Tensor& means) {
  arguments_.means = group_values(means);
}

void MapCall::set_result(const at::Tensor& result) {
  check_like(y_, result);
  HEADROOM_CHECK(is_channels_last(result),
                 "a result " + shape_text(result) + " of another layout");
  arguments_.result = result.mutable_data_ptr();
}

void MapCall::write_sums(const at::Tensor& sums) {
  targets_.sums = group_values(sums);
}

void MapCall::write_statistics(double epsilon,
                               const kernels::StatisticsResult& result) {
  set_statistics_targets(epsilon, result, groups_.size(), y_.size(1),
                         y_.device(), targets_);
}

void MapCall::write_gradients(const kernels::GradientSumsResult& result) {
  targets_.weight_gradient =
      const_cast<void*>(affine_values(result.weight_gradient));
  targets_.bias_gradient =
      const_cast<void*>(affine_values(result.bias_gradient));
  targets_.adds_gradients = result.adds_gradients;
  targets_.sums = group_values(result.sums);
  targets_.means = group_values(result.means);
}

void MapCall::choose_groups(size_t first, BatchNormArguments& arguments,
                            SumTargets& targets) const {
  PixelGroups& part = arguments.groups;
  part.count = choose_targets(groups_, first, arguments.channels, targets);
  const int64_t pixels = y_.size(2) * y_.size(3);
  part.begin[0] = first == 0 ? 0 : groups_[first - 1].end * pixels;
  for (int g = 0; g < part.count; ++g) {
    part.begin[g + 1] = groups_[first + static_cast<size_t>(g)].end * pixels;
  }
  const int64_t skipped = static_cast<int64_t>(first) * 2 * arguments.channels;
  if (arguments.statistics != nullptr) arguments.statistics += skipped;
  if (arguments.means != nullptr) arguments.means += skipped;
}

SumsCall::SumsCall(const at::Tensor& sums, kernels::MapGroups groups)
    : groups_(groups),
      channels_(sums.size(2)),
      from_(checked_group_values(sums, groups.size(), sums.size(2),
                                 sums.device())) {}

void SumsCall::write_statistics(double epsilon,
                                const kernels::StatisticsResult& result) {
  set_statistics_targets(epsilon, result, groups_.size(), channels_,
                         result.statistics.device(), targets_);
}

void SumsCall::write_means(const at::Tensor& means) {
  targets_.means =
      checked_group_values(means, groups_.size(), channels_, means.device());
}

int SumsCall::choose_groups(size_t first, SumTargets& targets) const {
  return choose_targets(groups_, first, channels_, targets);
}

}  // namespace headroom::cuda
