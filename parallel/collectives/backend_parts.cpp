#include "parallel/collectives/backend_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"

namespace headroom::collectives {
namespace {

template <typename Scalar>
void reduce_all(std::span<const Scalar* const> parts, ReduceOp op,
                int64_t count, Scalar* target) {
  // A piece of this many elements stays in the first-level cache.
  constexpr int64_t kPiece = 1024;
  std::array<Scalar, kPiece> sum;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = std::min(kPiece, count - begin);
    std::copy_n(parts[0] + begin, size, sum.begin());
    for (size_t part = 1; part < parts.size(); ++part) {
      const Scalar* const values = parts[part] + begin;
      if (op == ReduceOp::kSum) {
        for (int64_t i = 0; i < size; ++i) sum[i] += values[i];
      } else {
        for (int64_t i = 0; i < size; ++i) sum[i] = std::max(sum[i], values[i]);
      }
    }
    std::copy_n(sum.begin(), size, target + begin);
  }
}

// Calls body(zero of the tensor's type).
template <typename Body>
void for_type(at::ScalarType type, const Body& body) {
  switch (type) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kLong:
      return body(int64_t{});
    default:  // other types were refused by flat_view
      return body(uint8_t{});
  }
}

}  // namespace

at::Tensor flat_view(const at::Tensor& tensor) {
  HEADROOM_CHECK(tensor.defined() && tensor.is_cpu(),
                 "collectives take CPU tensors");
  const at::ScalarType type = tensor.scalar_type();
  HEADROOM_CHECK(type == at::kFloat || type == at::kDouble ||
                     type == at::kLong || type == at::kByte,
                 std::string("collectives take float, double, int64 and "
                             "uint8, not ") +
                     at::toString(type));
  HEADROOM_CHECK(tensor.is_non_overlapping_and_dense(),
                 "collectives take tensors without holes or overlap");
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor message_view(const at::Tensor& tensor) {
  const bool has_16_bits =
      tensor.defined() && (tensor.scalar_type() == at::kBFloat16 ||
                           tensor.scalar_type() == at::kHalf);
  if (!has_16_bits) return flat_view(tensor);
  HEADROOM_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
                 "messages are CPU tensors without holes or overlap");
  return tensor.detach().as_strided({tensor.numel()}, {1}).view(at::kByte);
}

void check_rank(int rank, int size) {
  HEADROOM_CHECK(rank >= 0 && rank < size,
                 cat("rank ", rank, " in a group of ", size));
}

void check_multiple(const at::Tensor& whole, const at::Tensor& part, int size) {
  HEADROOM_CHECK(
      whole.numel() == part.numel() * size,
      cat(whole.numel(), " elements are not ", size, " times ", part.numel()));
}

void reduce_parts(at::ScalarType type, const std::vector<std::byte*>& parts,
                  ReduceOp op, int64_t begin, int64_t end, std::byte* target) {
  for_type(type, [&](auto zero) {
    using Scalar = decltype(zero);
    std::vector<const Scalar*> values;
    for (std::byte* part : parts) {
      values.push_back(reinterpret_cast<const Scalar*>(part) + begin);
    }
    reduce_all<Scalar>(values, op, end - begin,
                       reinterpret_cast<Scalar*>(target));
  });
}

SplitMembers split_members(Communicator& communicator, int color, int key) {
  const auto all = tell_all(communicator, std::array<int64_t, 2>{color, key});

  std::vector<std::pair<int64_t, int>> keyed;
  std::map<int64_t, int> sizes;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    ++sizes[all[rank][0]];
    if (all[rank][0] == color) keyed.emplace_back(all[rank][1], rank);
  }
  std::sort(keyed.begin(), keyed.end());

  SplitMembers members;
  for (const auto& [of_color, size] : sizes) {
    members.largest = std::max(members.largest, size);
  }
  for (const auto& [member_key, rank] : keyed) {
    if (rank == communicator.rank()) {
      members.rank = static_cast<int>(members.ranks.size());
    }
    members.ranks.push_back(rank);
  }
  return members;
}

}  // namespace headroom::collectives
