#include "worker/optim/sgd.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "worker/optim/flat_check.h"
#include "worker/optim/flat_kernels.h"

namespace headroom {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements; three arrays of it fit in L2

void check_segments(std::span<const Segment> segments, int64_t size) {
  int64_t end = 0;
  for (const Segment& segment : segments) {
    HEADROOM_CHECK(
        segment.offset >= end && segment.size >= 0 &&
            segment.offset + segment.size <= size && segment.group >= 0 &&
            segment.group < kNumParameterGroups,
        "segment at " + std::to_string(segment.offset) + " of size " +
            std::to_string(segment.size) + ", group " +
            std::to_string(segment.group) + "; the one before ends at " +
            std::to_string(end) + ", the arena at " + std::to_string(size));
    end = segment.offset + segment.size;
  }
}

}  // namespace

void sgd_step(at::Tensor& parameters, const at::Tensor& gradients,
              at::Tensor& momentum_buffer, std::span<const Segment> segments,
              const std::array<GroupSettings, kNumParameterGroups>& groups,
              double momentum, double clip_coefficient, bool first_step) {
  check_flat_pair("parameters", parameters, "gradients", gradients);
  check_flat_pair("parameters", parameters, "momentum", momentum_buffer);
  check_segments(segments, parameters.numel());

  AT_DISPATCH_FLOATING_TYPES(parameters.scalar_type(), "sgd_step", [&] {
    scalar_t* p = parameters.mutable_data_ptr<scalar_t>();
    const scalar_t* g = gradients.const_data_ptr<scalar_t>();
    scalar_t* buffer = momentum_buffer.mutable_data_ptr<scalar_t>();
    at::parallel_for(
        0, parameters.numel(), kGrain, [&](int64_t begin, int64_t end) {
          auto segment = std::partition_point(
              segments.begin(), segments.end(),
              [begin](const Segment& s) { return s.offset + s.size <= begin; });
          for (; segment != segments.end() && segment->offset < end;
               ++segment) {
            const int64_t from = std::max(begin, segment->offset);
            const int64_t to = std::min(end, segment->offset + segment->size);
            const GroupSettings& group =
                groups[static_cast<size_t>(segment->group)];
            const SgdCoefficients<scalar_t> coefficients{
                static_cast<scalar_t>(group.lr),
                static_cast<scalar_t>(group.weight_decay),
                static_cast<scalar_t>(momentum),
                static_cast<scalar_t>(clip_coefficient), first_step};
            sgd_range(p + from, g + from, buffer + from, to - from,
                      coefficients);
          }
        });
  });
}

}  // namespace headroom
