// Exchanges small data between all ranks: numbers, byte strings of any length,
// and whether all ranks agree. The functions are collective unless they say
// otherwise, and throw CommunicationError.
#pragma once

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// Returns every rank's `mine`, by rank. REQUIRES: T consists of int64_t only.
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

bool all_agree(Communicator& ranks, bool here);

// Returns every rank's bytes, by rank. Ranks may pass different numbers of
// bytes.
std::vector<std::string> gather_bytes(Communicator& communicator,
                                      const std::string& mine);

// Sends bytes to one rank, which calls receive_bytes(). Unlike the others,
// these two are called by the two ranks only.
void send_bytes(Communicator& ranks, const std::string& bytes, int to);
std::string receive_bytes(Communicator& ranks, int from);

// Returns rank `root`'s bytes on every rank.
std::string broadcast_bytes(Communicator& communicator,
                            const std::string& bytes, int root);

}  // namespace headroom::collectives
