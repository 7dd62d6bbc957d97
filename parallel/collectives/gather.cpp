#include "parallel/collectives/gather.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

namespace headroom::collectives {
namespace {

// Results and names are host memory, not the step's: where that is used up,
// they can still be gathered.
at::Tensor bytes_at(std::string& memory) {
  return at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())},
                       at::kByte);
}

at::Tensor numbers_at(std::vector<int64_t>& memory) {
  return at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())},
                       at::kLong);
}

}  // namespace

std::vector<std::string> gather_bytes(Communicator& communicator,
                                      const std::string& mine) {
  const auto size = static_cast<size_t>(communicator.size());
  std::vector<int64_t> counts(size);
  std::vector<int64_t> count = {static_cast<int64_t>(mine.size())};
  communicator.all_gather(numbers_at(counts), numbers_at(count));

  const auto longest = static_cast<size_t>(
      std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end())));
  std::string own = mine;
  own.resize(longest);
  std::string all(size * longest, '\0');
  communicator.all_gather(bytes_at(all), bytes_at(own));

  std::vector<std::string> parts;
  for (size_t rank = 0; rank < size; ++rank) {
    parts.push_back(
        all.substr(rank * longest, static_cast<size_t>(counts[rank])));
  }
  return parts;
}

std::string broadcast_bytes(Communicator& communicator,
                            const std::string& bytes, int root) {
  std::vector<int64_t> count = {static_cast<int64_t>(bytes.size())};
  communicator.broadcast(numbers_at(count), root);
  std::string all = communicator.rank() == root
                        ? bytes
                        : std::string(static_cast<size_t>(count.front()), '\0');
  if (!all.empty()) communicator.broadcast(bytes_at(all), root);
  return all;
}

}  // namespace headroom::collectives
