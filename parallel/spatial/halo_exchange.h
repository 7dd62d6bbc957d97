// CommunicatorHaloExchange: a HaloExchange over the ranks of a communicator.
//
// All messages of one exchange are under way at once, so the order in which
// ranks reach it does not matter and nothing deadlocks. Rank i of the
// communicator holds part i of the partition.
//
// The communicator must outlive it, and serve nothing that is not issued in the
// same order on all ranks, as gradient buckets are not. Errors:
// CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/base/layer_exchange.h"
#include "parallel/collectives/communicator.h"
#include "parallel/spatial/image_split.h"

namespace headroom::spatial {

class CommunicatorHaloExchange final : public HaloExchange {
 public:
  // REQUIRES: as many ranks as parts.
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
