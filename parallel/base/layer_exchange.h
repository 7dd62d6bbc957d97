// What a layer exchanges with other ranks, as interfaces that it is handed, so
// that the network knows no ranks: sums of batch-norm groups that span ranks
// (StatisticsExchange), and the neighbouring rows of an image whose rows are
// split (HaloExchange). Where neither happens no exchange is handed over.
//
// Both are used by the thread that runs the step. Every rank calls them equally
// often, in the same order and for the same maps, also with no sample of its
// own. Errors: CommunicationError.
#pragma once

#include <cstdint>
#include <span>

namespace at {
class Tensor;
}

namespace headroom {

// One batch-norm group as a micro-batch sees it. Groups are listed in global
// order, and every rank lists the same groups whenever an exchange is set.
struct BatchNormGroup {
  // Samples [local_begin, local_end) of this micro-batch; may be empty.
  int64_t local_begin = 0;
  int64_t local_end = 0;
  // Samples of the whole group, over all ranks.
  int64_t global_samples = 0;
  // One rank per group counts its statistics towards the running ones.
  bool counts_here = true;
};

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Replaces `values` by their element-wise sum over all ranks.
  virtual void sum(std::span<double> values) = 0;

  // The same for values (float64, dense) that may lie on a device, and are
  // summed there. All ranks' values lie alike.
  virtual void sum_tensor(const at::Tensor& values) = 0;
};

// The rows of a whole map that a rank holds.
struct RowWindow {
  int64_t first_row = 0;
  int64_t global_rows = 0;  // the whole map's height
  bool operator==(const RowWindow&) const = default;
};

// A split map holds a run of consecutive rows only. A kernel that reaches
// beyond them fetches the halo [N, C, top + bottom, W]: the rows above its own,
// then those below. receive() brings it in forward; give_back(), its transpose,
// returns the gradients of those rows to their owners in backward.
class HaloExchange {
 public:
  virtual ~HaloExchange() = default;

  // The place of a map of which `local_rows` rows are here. The split is the
  // same for every map of the network, up to its scale.
  virtual RowWindow window(int64_t local_rows) const = 0;

  // The halo of `x` [N, C, H, W]; rows beyond the edge of the whole map are
  // filled with `beyond_edge`. Both are channels-last; not tracked by autograd.
  virtual at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                             double beyond_edge) = 0;

  // `dhalo` holds gradients of the rows that receive(x, top, ...) returned.
  // Adds to `dx`, the gradient of x, in place and in the order of ranks, what
  // other ranks give back for rows of x. REQUIRES: both channels-last.
  virtual void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                         int64_t top) = 0;

  // Replaces `values` (float64, dense, on the host: numbers per sample, the
  // samples in front) by their sum over the ranks that share the images, the
  // same bits on all of them.
  virtual void sum_over_images(const at::Tensor& values) = 0;
};

}  // namespace headroom
