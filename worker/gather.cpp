#include "worker/gather.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "parallel/base/memory_category.h"

namespace headroom {
namespace {

at::Tensor to_tensor(const std::string& bytes, int64_t length) {
  at::Tensor tensor = at::zeros({length}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

std::vector<std::string> gather_bytes(Communicator& communicator,
                                      const std::string& mine) {
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  const int size = communicator.size();
  at::Tensor lengths = at::empty({size}, at::kLong);
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(mine.size());
  communicator.all_gather(lengths, length);

  const int64_t* counts = lengths.const_data_ptr<int64_t>();
  const int64_t longest =
      std::max<int64_t>(1, *std::max_element(counts, counts + size));
  at::Tensor all = at::empty({size * longest}, at::kByte);
  communicator.all_gather(all, to_tensor(mine, longest));

  std::vector<std::string> parts;
  const char* data = static_cast<const char*>(all.const_data_ptr());
  for (int rank = 0; rank < size; ++rank) {
    parts.emplace_back(data + rank * longest, counts[rank]);
  }
  return parts;
}

std::string broadcast_bytes(Communicator& communicator,
                            const std::string& bytes, int root) {
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(bytes.size());
  communicator.broadcast(length, root);
  const int64_t count = length.data_ptr<int64_t>()[0];
  if (count == 0) return "";
  at::Tensor tensor = communicator.rank() == root
                          ? to_tensor(bytes, count)
                          : at::empty({count}, at::kByte);
  communicator.broadcast(tensor, root);
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(count)};
}

}  // namespace headroom
