// What ranks tell each other before they share something.
//
// Collective over `ranks`; threads, errors: as Communicator.
#pragma once

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// Everybody's, by rank. REQUIRES: a T of int64_t numbers only.
template <typename T>
std::vector<T> tell_all(Communicator& ranks, T mine) {
  static_assert(std::is_trivially_copyable_v<T> &&
                sizeof(T) % sizeof(int64_t) == 0);
  constexpr int64_t kNumbers = sizeof(T) / sizeof(int64_t);
  std::vector<T> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(
      at::from_blob(all.data(), {ranks.size() * kNumbers}, at::kLong),
      at::from_blob(&mine, {kNumbers}, at::kLong));
  return all;
}

inline bool all_agree(Communicator& ranks, bool here) {
  int64_t refusals = here ? 0 : 1;
  ranks.all_reduce(at::from_blob(&refusals, {1}, at::kLong));
  return refusals == 0;
}

}  // namespace headroom::collectives
