#include "worker/kernels/cpu/cell_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "parallel/base/device_scratch.h"

namespace headroom::kernels {
namespace {

// Makes channels adjacent in memory; slices of wider maps are not copied.
at::Tensor with_neighbouring_channels(const at::Tensor& map) {
  return map.size(1) == 1 || map.stride(1) == 1
             ? map
             : map.contiguous(at::MemoryFormat::ChannelsLast);
}

template <typename Element>
void add_sample(const at::Tensor& a, const at::Tensor& b, int64_t sample,
                double* sums) {
  const int64_t channels = a.size(1);
  const auto at = [sample](const at::Tensor& map, int64_t y, int64_t x) {
    return map.const_data_ptr<Element>() + sample * map.stride(0) +
           y * map.stride(2) + x * map.stride(3);
  };
  for (int64_t y = 0; y < a.size(2); ++y) {
    for (int64_t x = 0; x < a.size(3); ++x) {
      const Element* first = at(a, y, x);
      if (!b.defined()) {
        for (int64_t c = 0; c < channels; ++c)
          sums[c] += static_cast<double>(first[c]);
        continue;
      }
      const Element* second = at(b, y, x);
      for (int64_t c = 0; c < channels; ++c)
        sums[c] +=
            static_cast<double>(first[c]) * static_cast<double>(second[c]);
    }
  }
}

// Copies and sums a few samples at a time, to bound the memory of the copies.
at::Tensor sums_of_copies(const at::Tensor& a, const at::Tensor& b) {
  const int64_t samples = a.size(0);
  const at::Tensor sums =
      at::empty({samples, a.size(1)}, a.options().dtype(at::kDouble));
  const int64_t at_once =
      samples_summed_at_once(a.size(1) * a.size(2) * a.size(3));
  for (int64_t begin = 0; begin < samples; begin += at_once) {
    const int64_t count = std::min(at_once, samples - begin);
    at::Tensor wide = a.narrow(0, begin, count).to(at::kDouble);
    if (b.defined()) {
      const at::Tensor other = b.narrow(0, begin, count);
      wide =
          a.scalar_type() == at::kDouble ? wide.mul(other) : wide.mul_(other);
    }
    at::Tensor part = sums.narrow(0, begin, count);
    at::sum_out(part, wide, at::IntArrayRef{2, 3});
  }
  return sums;
}

}  // namespace

at::Tensor cell_sums(const at::Tensor& a, const at::Tensor& b) {
  if (!a.device().is_cpu()) return sums_of_copies(a, b);
  const at::Tensor first = with_neighbouring_channels(a);
  const at::Tensor second =
      b.defined() ? with_neighbouring_channels(b) : at::Tensor();
  const at::Tensor sums = at::zeros({a.size(0), a.size(1)}, at::kDouble);
  double* const to = sums.mutable_data_ptr<double>();
  at::parallel_for(0, a.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      double* const own = to + sample * a.size(1);
      AT_DISPATCH_FLOATING_TYPES_AND2(
          at::kBFloat16, at::kHalf, a.scalar_type(), "cell_sums",
          [&] { add_sample<scalar_t>(first, second, sample, own); });
    }
  });
  return sums;
}

}  // namespace headroom::kernels
