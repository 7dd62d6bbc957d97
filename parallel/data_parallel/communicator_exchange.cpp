#include "parallel/data_parallel/communicator_exchange.h"

#include <ATen/ops/from_blob.h>

#include <cstdint>

namespace headroom::data_parallel {

void CommunicatorExchange::sum(std::span<double> values) {
  if (values.empty()) return;  // an empty micro-batch, on all of them
  communicator_.all_reduce(at::from_blob(
      values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
}

}  // namespace headroom::data_parallel
