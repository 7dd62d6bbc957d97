#include "parallel/collectives/gather.h"

#include <ATen/ops/from_blob.h>
#include <algorithm>

namespace headroom::collectives {
namespace {

// A tensor over plain host memory, which is not counted as tensor memory:
// results can still be gathered after a tensor allocation has failed.
at::Tensor bytes_at(std::string& memory) {
  return at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())},
                       at::kByte);
}

}  // namespace

bool all_agree(Communicator& ranks, bool here) {
  int64_t refusals = here ? 0 : 1;
  ranks.all_reduce(at::from_blob(&refusals, {1}, at::kLong));
  return refusals == 0;
}

std::vector<std::string> gather_bytes(Communicator& communicator,
                                      const std::string& mine) {
  const std::vector<int64_t> counts =
      tell_all(communicator, static_cast<int64_t>(mine.size()));

  const auto longest =
      static_cast<size_t>(std::max<int64_t>(1, std::ranges::max(counts)));
  std::string own = mine;
  own.resize(longest);
  std::string all(counts.size() * longest, '\0');
  communicator.all_gather(bytes_at(all), bytes_at(own));

  std::vector<std::string> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    parts.push_back(
        all.substr(rank * longest, static_cast<size_t>(counts[rank])));
  }
  return parts;
}

void send_bytes(Communicator& ranks, const std::string& bytes, int to) {
  auto count = static_cast<int64_t>(bytes.size());
  ranks.send(at::from_blob(&count, {1}, at::kLong), to);
  // Sending only reads the bytes.
  auto* const memory = const_cast<char*>(bytes.data());
  if (count > 0) ranks.send(at::from_blob(memory, {count}, at::kByte), to);
}

std::string receive_bytes(Communicator& ranks, int from) {
  int64_t count = 0;
  ranks.recv(at::from_blob(&count, {1}, at::kLong), from);
  std::string bytes(static_cast<size_t>(count), '\0');
  if (count > 0) ranks.recv(bytes_at(bytes), from);
  return bytes;
}

std::string broadcast_bytes(Communicator& communicator,
                            const std::string& bytes, int root) {
  auto count = static_cast<int64_t>(bytes.size());
  communicator.broadcast(at::from_blob(&count, {1}, at::kLong), root);
  std::string all = communicator.rank() == root
                        ? bytes
                        : std::string(static_cast<size_t>(count), '\0');
  if (!all.empty()) communicator.broadcast(bytes_at(all), root);
  return all;
}

}  // namespace headroom::collectives
