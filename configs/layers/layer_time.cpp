#include "configs/layers/layer_time.h"

namespace headroom::layers {

LayerTime layer_time(const LayerCost& layer) {
  const double work = layer.multiply_adds_per_pixel;
  const double maps = layer.kept_elements_per_pixel;
  LayerTime time;
  time.keep = 3.75 * work + 240 * maps;
  time.lean = time.keep + 8 * maps;
  // A layer without a convolution saves nothing but its inputs.
  time.recompute = work > 0 ? time.keep + work + 48 * maps : time.lean;
  time.offload = time.keep + 58 * maps;
  return time;
}

}  // namespace headroom::layers
