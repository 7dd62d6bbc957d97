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

MapCall::MapCall(const at::Tensor& y, kernels::MapGroups groups,
                 int multiprocessors)
    : y_(y), device_(y.device()), groups_(groups) {
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

MapCall::MapCall(const at::Tensor& sums, kernels::MapGroups groups)
    : device_(sums.device()), groups_(groups) {
  arguments_.channels = sums.size(2);
  arguments_.sums = group_values(sums);
}

double* MapCall::group_values(const at::Tensor& values, size_t groups) const {
  if (!values.defined()) return nullptr;
  const int64_t channels = arguments_.channels;
  HEADROOM_CHECK(
      values.scalar_type() == at::kDouble && values.is_contiguous() &&
          values.device() == device_ &&
          values.numel() == static_cast<int64_t>(groups) * 2 * channels,
      cat(shape_text(values), " beside ", groups, " groups of ", channels,
          " channels"));
  return values.mutable_data_ptr<double>();
}

void* MapCall::affine_values(const at::Tensor& values) const {
  const auto type = y_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  HEADROOM_CHECK(values.numel() == y_.size(1) && values.is_contiguous() &&
                     values.device() == device_ && values.scalar_type() == type,
                 shape_text(values) + " beside a map " + shape_text(y_));
  return values.mutable_data_ptr();
}

void MapCall::check_like_map(const at::Tensor& other) const {
  HEADROOM_CHECK(other.sizes() == y_.sizes() && other.device() == device_ &&
                     other.scalar_type() == y_.scalar_type(),
                 shape_text(other) + " beside a map " + shape_text(y_));
}

void MapCall::set_norm(const at::Tensor& statistics, const at::Tensor& weight,
                       const at::Tensor& bias,
                       const layers::ActivationFunction& activation) {
  arguments_.statistics = group_values(statistics);
  arguments_.activation = activation;
  arguments_.weight = affine_values(weight);
  arguments_.bias = affine_values(bias);
}

void MapCall::set_gradient(const at::Tensor& gradient) {
  check_like_map(gradient);
  arguments_.gradient = gradient.const_data_ptr();
  arguments_.gradient_stride = pixel_stride(gradient);
}

void MapCall::set_means(const at::Tensor& means) {
  arguments_.means = group_values(means);
}

void MapCall::set_result(const at::Tensor& result) {
  check_like_map(result);
  HEADROOM_CHECK(is_channels_last(result),
                 "a result " + shape_text(result) + " of another layout");
  arguments_.result = result.mutable_data_ptr();
}

void MapCall::write_sums(const at::Tensor& sums) {
  targets_.sums = group_values(sums);
}

void MapCall::write_statistics(double epsilon,
                               const kernels::StatisticsResult& result) {
  targets_.epsilon = epsilon;
  targets_.statistics = group_values(result.statistics);
  targets_.running = group_values(result.running, /*groups=*/1);
}

void MapCall::write_means(const at::Tensor& means) {
  targets_.means = group_values(means);
}

void MapCall::write_gradients(const kernels::GradientSumsResult& result) {
  targets_.weight_gradient = affine_values(result.weight_gradient);
  targets_.bias_gradient = affine_values(result.bias_gradient);
  targets_.adds_gradients = result.adds_gradients;
  write_sums(result.sums);
  write_means(result.means);
}

void MapCall::choose_groups(size_t first, BatchNormArguments& arguments,
                            SumTargets& targets) const {
  const int64_t pixels = y_.defined() ? y_.size(2) * y_.size(3) : 0;
  PixelGroups& part = arguments.groups;
  part.count =
      static_cast<int>(std::min<size_t>(kMostGroups, groups_.size() - first));
  part.begin[0] = first == 0 ? 0 : groups_[first - 1].end * pixels;
  targets.counted = 0;
  for (int g = 0; g < part.count; ++g) {
    const kernels::MapGroup& group = groups_[first + static_cast<size_t>(g)];
    part.begin[g + 1] = group.end * pixels;
    targets.values[g] = group.values;
    if (group.counts_here) targets.counted |= uint64_t{1} << g;
  }
  targets.adds_gradients |= first > 0;
  const auto skip = [&](auto*& values) {
    if (values == nullptr) return;
    values += static_cast<int64_t>(first) * 2 * arguments.channels;
  };
  skip(arguments.sums);
  skip(arguments.statistics);
  skip(arguments.means);
  skip(targets.sums);
  skip(targets.statistics);
  skip(targets.means);
}

}  // namespace headroom::cuda
