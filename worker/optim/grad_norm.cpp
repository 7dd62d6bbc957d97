#include "worker/optim/grad_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "worker/optim/flat_kernels.h"
#include "worker/optim/optimizer.h"

namespace headroom::optim {
namespace {

constexpr int64_t kMinChunk = 1 << 14;
constexpr int64_t kMaxChunks = 1024;

}  // namespace

double squared_norm_of_sum(const at::Tensor& a, const at::Tensor& b) {
  check_flat_pair("gradient", a, "added gradient", b.defined() ? b : a);
  const int64_t size = a.numel();
  const int64_t chunk =
      std::max(kMinChunk, (size + kMaxChunks - 1) / kMaxChunks);
  const int64_t num_chunks = (size + chunk - 1) / chunk;
  std::array<double, kMaxChunks> sums = {};
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "squared_norm_of_sum", [&] {
    const scalar_t* pa = a.const_data_ptr<scalar_t>();
    const scalar_t* pb = b.defined() ? b.const_data_ptr<scalar_t>() : nullptr;
    at::parallel_for(0, num_chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t offset = i * chunk;
        sums[static_cast<size_t>(i)] =
            sum_of_squares(pa + offset, pb == nullptr ? nullptr : pb + offset,
                           std::min(chunk, size - offset));
      }
    });
  });
  double sum = 0;
  for (int64_t i = 0; i < num_chunks; ++i) sum += sums[static_cast<size_t>(i)];
  return sum;
}

void add_in_place(const at::Tensor& a, const at::Tensor& b) {
  check_flat_pair("gradient", a, "added gradient", b);
  a.add_(b);
}

double clip_coefficient(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace headroom::optim
