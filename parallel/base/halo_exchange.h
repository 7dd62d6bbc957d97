// HaloExchange: rows of a map that lie with other ranks, and sums over all rows
// of an image.
//
// A convolution block knows no ranks. When an image's rows are split over
// several, its map holds a run of consecutive rows only, and a kernel that
// reaches beyond them is handed an exchange to fetch the missing ones: the halo
// [N, C, top + bottom, W], the rows above the own ones, then those below.
//
// Two duties, each the transpose of the other:
//   receive    rows of other ranks come here               forward
//   give_back  gradients of those rows return to their     backward
//              owners, who add them to their own
//
// Every rank of a split calls both equally often, in the same order and for the
// same map. A rank without samples sends and receives nothing.
//
// Threads: used by the thread that runs the step.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace headroom {

// Which rows of a whole map a rank holds.
struct RowWindow {
  int64_t first_row = 0;
  int64_t global_rows = 0;  // of the whole map
  bool operator==(const RowWindow&) const = default;
};

class HaloExchange {
 public:
  virtual ~HaloExchange() = default;

  // The place of a map of which `local_rows` rows are here. The split is the
  // same for every map of the network, up to its scale.
  virtual RowWindow window(int64_t local_rows) const = 0;

  // The halo of `x` [N, C, H, W]; rows beyond the edge of the whole map are
  // filled with `beyond_edge`. Both are channels-last; not tracked by autograd.
  // Throws CommunicationError.
  virtual at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                             double beyond_edge) = 0;

  // `dhalo` holds gradients of the rows that receive(x, top, ...) returned.
  // Adds to `dx`, the gradient of x, in place and in the order of ranks, what
  // other ranks give back for rows of x. REQUIRES: both channels-last. Throws
  // CommunicationError.
  virtual void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                         int64_t top) = 0;

  // Replaces `values` (float64, dense, on the host: numbers per sample, the
  // samples in front) by their sum over the ranks that share the images, the
  // same bits on all of them. Throws CommunicationError.
  virtual void sum_over_images(const at::Tensor& values) = 0;
};

}  // namespace headroom
