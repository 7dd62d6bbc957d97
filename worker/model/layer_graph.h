// LayerGraph: a detector as layers and edges, built from a model table.
//
// A layer is one line of the YAML table (configs/model): its inputs, its
// module, its position in the state. The graph does not depend on ranks, files
// or plans; anything that spans ranks is in StepContext. A pipeline stage uses
// a part of a graph: keep_layers() keeps a range of layers, which get the maps
// of other layers as arguments.
//
// Shapes: images [N, C, H, W] in channels-last memory, with C the table's `ch`,
// and H and W multiples of max_stride(). If `ch` is 1, images may have three
// channels, which are converted to gray. heads[level] [N, anchors, H/stride,
// W/stride, 5 + num_classes] have the fields x, y, w, h, objectness, classes,
// before the sigmoid; heads without anchors have other maps (place_head.h).
// Types: the state is float32 or float64. Images have the
// state's type, or bfloat16 or float16 if the state is float32. Maps have the
// images' type; the heads of 16-bit images are float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer.h"
#include "worker/model/step_context.h"

namespace headroom::model {

class LayerGraph {
 public:
  // Builds the layers with initial weights that depend only on `seed` and each
  // tensor's name: Kaiming-uniform convolutions, YOLOv5's detection bias, and
  // running_var 0.9 and num_batches_tracked 1, the values in a new YOLOv5 model
  // after its stride probe. Throws Error with the table's file:line:column for
  // an unknown module, wrong arguments or a wrong edge.
  LayerGraph(const layers::ModelTable& table, int64_t num_classes,
             at::ScalarType scalar_type, uint64_t seed);
  ~LayerGraph();
  LayerGraph(const LayerGraph&) = delete;
  LayerGraph& operator=(const LayerGraph&) = delete;

  // Returns the heads, one tensor per level, finest first. REQUIRES: all layers
  // are kept.
  std::vector<at::Tensor> forward(const at::Tensor& images,
                                  const StepContext& context);

  struct LayerRange {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const LayerRange&) const = default;
  };
  // Drops the layers outside `layers` and frees their tensors. From then on
  // state(), batch_norms() and batch_norm_sums_size() cover the kept layers
  // only. If the head is dropped, levels() keeps the anchors of this moment, so
  // load weights first. REQUIRES: `layers` is a non-empty range of layers that
  // are still kept.
  void keep_layers(LayerRange layers);
  LayerRange kept_layers() const;

  using LayerMaps = std::map<int, at::Tensor>;  // maps by layer index
  // Runs the kept layers. `received` has the map of every other layer that they
  // read; `images` may be undefined if no kept layer reads them. Returns the
  // maps of the layers in `wanted`, in that order. If the last layer is kept,
  // returns the heads, and `wanted` must be empty. A map that is not in
  // `wanted` is released after its last reader.
  std::vector<at::Tensor> forward_layers(LayerMaps received,
                                         const at::Tensor& images,
                                         const StepContext& context,
                                         const std::vector<int>& wanted);

  // Converts heads to boxes [N, rows, 5 + num_classes]: xywh in pixels, scores
  // after the sigmoid; rows ordered by level, anchor, y, x. first_rows[level]:
  // the first row of each head if heads hold only some rows of an image; empty
  // if they hold all. REQUIRES: the last layer is kept.
  at::Tensor decode(const std::vector<at::Tensor>& heads,
                    const std::vector<int64_t>& first_rows = {}) const;

  // All state entries in state-dict order. Pointers are valid until
  // keep_layers() drops their layer or the graph is destroyed.
  NamedTensors state();

  // A batch-norm layer: its slice of StepContext::batch_norm_sums, and the
  // running statistics that the commit updates.
  struct BatchNorm {
    std::string name;  // "model.0.bn"
    int64_t channels = 0;
    int64_t sums_offset = 0;  // the first element; the slice is [2, channels]
    at::Tensor* running_mean = nullptr;
    at::Tensor* running_var = nullptr;
    int64_t layer = 0;
  };
  const std::vector<BatchNorm>& batch_norms() const;
  int64_t batch_norm_sums_size() const;  // elements of all slices

  struct Level {
    int64_t stride = 0;
    std::vector<std::pair<double, double>> anchors;  // pixels (w, h)
  };
  // The anchors are read from the state, because loading weights may change
  // them; call it while the state is on the host. The reference is valid until
  // the next call.
  const std::vector<Level>& levels() const;
  bool has_anchors() const;
  int64_t num_classes() const;
  int64_t input_channels() const;
  int64_t max_stride() const;
  int64_t num_layers() const;  // layers of the table, also dropped ones

  // The layers that each layer reads: earlier layers, or -1 for the images.
  const std::vector<std::vector<int>>& inputs() const;
  // The output shape of each layer, including dropped layers; unset for the
  // head.
  const std::vector<layers::MapShape>& map_shapes() const;

  // Stops the parameters of layers [0, num_layers_frozen) from learning.
  void freeze(int64_t num_layers_frozen);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::model
