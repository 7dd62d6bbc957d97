// Checks that all ranks must run together over NCCL. A check that fails throws
// std::runtime_error.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>
#include <string>

#include "parallel/collectives/communicator.h"

namespace headroom::cuda {

inline void require_equal(const at::Tensor& actual, const at::Tensor& expected,
                          const std::string& what) {
  if (!at::equal(actual.cpu(), expected.cpu())) {
    throw std::runtime_error(what + ": wrong values");
  }
}

inline void check_nccl(collectives::Communicator& ranks,
                       at::Device own = at::Device(at::kCUDA, 0)) {
  const int size = ranks.size();
  const int rank = ranks.rank();
  for (const at::Device device : {own, at::Device(at::kCPU)}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong,
                                      at::kByte, at::kHalf, at::kBFloat16}) {
      for (const int64_t count : {0, 1, 1000, 100003}) {
        const auto options = at::TensorOptions(type).device(device);
        // Whole numbers whose sums are exact in every type.
        const at::Tensor numbers =
            at::arange(count, at::TensorOptions(at::kLong).device(device))
                .remainder(5)
                .to(type);
        const at::Tensor sum = numbers + rank;
        ranks.all_reduce(sum);
        require_equal(sum, numbers * size + size * (size - 1) / 2, "sum");
        const at::Tensor most = numbers + rank;
        ranks.all_reduce(most, collectives::ReduceOp::kMax);
        require_equal(most, numbers + (size - 1), "max");

        const at::Tensor whole = at::zeros({size * count}, options);
        ranks.all_gather(whole, numbers + rank);
        for (int of = 0; of < size; ++of) {
          require_equal(whole.narrow(0, of * count, count), numbers + of,
                        "gather");
        }
        const at::Tensor part = at::zeros({count}, options);
        const at::Tensor parts = whole.clone();
        ranks.reduce_scatter(part, parts);
        require_equal(part, (numbers + rank) * size, "scatter");

        const at::Tensor sent = numbers + rank;
        ranks.broadcast(sent, size - 1);
        require_equal(sent, numbers + (size - 1), "broadcast");
      }
    }
  }
  ranks.barrier();
  const auto alone = ranks.split(rank, 0);
  if (alone->size() != 1) throw std::runtime_error("split: not alone");
  const auto reversed = ranks.split(0, -rank);
  if (reversed->rank() != size - 1 - rank || reversed->size() != size) {
    throw std::runtime_error("split: another order");
  }
  const at::Tensor ones = at::ones({10}, own);
  reversed->all_reduce(ones);
  require_equal(ones, at::full({10}, static_cast<float>(size)), "split");
}

}  // namespace headroom::cuda
