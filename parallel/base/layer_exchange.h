// Interfaces through which a layer exchanges data with other ranks, so that the
// network code does not depend on ranks. StatisticsExchange sums the statistics
// of batch-norm groups that span ranks; HaloExchange fetches neighbouring rows
// of an image that is split by rows. A layer that needs neither gets no
// exchange.
//
// Both are used by the thread that runs the step. Ranks that exchange call them
// equally often, in the same order and for the same maps. Errors:
// CommunicationError.
#pragma once

#include <cstdint>
#include <span>

namespace at {
class Tensor;
}

namespace headroom {

// The part of a batch-norm group in one micro-batch. Groups with samples there
// are listed, in global order.
struct BatchNormGroup {
  // Samples [local_begin, local_end) of this micro-batch.
  int64_t local_begin = 0;
  int64_t local_end = 0;
  // Samples of the whole group, over all ranks.
  int64_t global_samples = 0;
  // True on one rank of the group, which updates the running statistics.
  bool counts_here = true;
};

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Replaces `values`, which have equal parts for each listed group, by their
  // sums over the ranks that share the groups.
  virtual void sum(std::span<double> values) = 0;

  // Like sum(), for a contiguous float64 tensor that may be on a device; the
  // sum is computed there.
  virtual void sum_tensor(const at::Tensor& values) = 0;
};

// The rows of a whole map that a rank holds.
struct RowWindow {
  int64_t first_row = 0;
  int64_t global_rows = 0;  // the whole map's height
  bool operator==(const RowWindow&) const = default;
};

// Each rank holds a range of consecutive rows of a split map. A kernel that
// needs rows beyond its range fetches the halo [N, C, top + bottom, W]: first
// the rows above, then those below. receive() fetches it in forward;
// give_back(), its transpose, returns the gradients of those rows to their
// owners in backward.
class HaloExchange {
 public:
  virtual ~HaloExchange() = default;

  // Returns which rows of the whole map a local map of `local_rows` rows
  // covers. All maps of the network are split in the same proportion.
  virtual RowWindow window(int64_t local_rows) const = 0;

  // Returns the halo of `x` [N, C, H, W]. Rows beyond the edge of the whole map
  // are filled with `beyond_edge`. Both tensors are channels-last; autograd
  // does not track the exchange.
  virtual at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                             double beyond_edge) = 0;

  // `dhalo` holds the gradients of the rows that receive(x, top, ...) returned;
  // they are sent to the ranks that own those rows. Adds to `dx`, the gradient
  // of x, the gradients that other ranks send for rows of x, in place and in
  // rank order. REQUIRES: both channels-last.
  virtual void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                         int64_t top) = 0;

  // Replaces `values` by their sum over the ranks that share the images; the
  // result has the same bits on all of them. `values` is float64, dense, on the
  // host, with samples as the first dimension.
  virtual void sum_over_images(const at::Tensor& values) = 0;
};

}  // namespace headroom
