// CommunicatorHaloExchange: a HaloExchange over the ranks of a communicator.
//
// All messages of one exchange are in flight at once, so ranks may reach the
// exchange in any order. Rank i of the communicator holds part i of the split.
//
// The communicator must outlive this object. All other operations on the
// communicator must be issued in the same order on all ranks. The order of halo
// exchanges and gradient buckets may differ between ranks, so the buckets need
// another communicator. Errors: CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/base/layer_exchange.h"
#include "parallel/collectives/communicator.h"
#include "parallel/spatial/image_split.h"

namespace headroom::spatial {

class CommunicatorHaloExchange final : public HaloExchange {
 public:
  // REQUIRES: ranks.size() equals the number of parts.
  CommunicatorHaloExchange(collectives::Communicator& spatial_ranks,
                           const ImageSplit& partition);

  RowWindow window(int64_t local_rows) const override;
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double beyond_edge) override;
  void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                 int64_t top) override;
  void sum_over_images(const at::Tensor& values) override;

 private:
  HaloPlan plan(int64_t local_rows, int64_t top, int64_t bottom) const;

  collectives::Communicator& ranks_;
  ImageSplit partition_;
};

}  // namespace headroom::spatial
