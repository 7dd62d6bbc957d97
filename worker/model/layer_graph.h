// LayerGraph: a detector as layers and edges, built from a model table.
//
// A layer is one line of the YAML table (configs/model): its inputs, its
// module, its place in the state. The graph knows no ranks, files or plans;
// what spans ranks reaches it through StepContext. A part of a graph is one
// that has kept a run of its layers: it is handed the maps that its layers read
// from others.
//
// Shapes: images [N, C, H, W] in channels-last memory, C the table's `ch`, H
// and W multiples of max_stride(); for a `ch` of 1 they may have three
// channels, of which gray is made; heads[level] [N, anchors, H/stride,
// W/stride, 5 + num_classes] with fields x, y, w, h, objectness, classes,
// before the sigmoid. Types: the state is float32 or float64. Maps are of the
// images' type: the state's, or bfloat16 or float16 beside a float32 state;
// then heads are float32.
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
  // Builds the layers with freshly initialised weights that follow from `seed`
  // and each tensor's name alone: Kaiming-uniform convolutions, the detection
  // bias of YOLOv5, running_var 0.9 and num_batches_tracked 1 as a fresh
  // YOLOv5 model holds them (its stride probe has touched them).
  // Throws Error with the table's file:line:column for an unknown module, wrong
  // arguments or a wrong edge.
  LayerGraph(const layers::ModelTable& table, int64_t num_classes,
             at::ScalarType scalar_type, uint64_t seed);
  ~LayerGraph();
  LayerGraph(const LayerGraph&) = delete;
  LayerGraph& operator=(const LayerGraph&) = delete;

  // One tensor per detection level, finest first. REQUIRES: all layers kept.
  std::vector<at::Tensor> forward(const at::Tensor& images,
                                  const StepContext& context);

  struct LayerRange {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const LayerRange&) const = default;
  };
  // Drops the layers outside `layers` and frees their tensors. From then on
  // state(), batch_norms() and batch_norm_sums_size() speak of the kept layers
  // alone, and anchors stay as they are now where the head goes: weights are
  // loaded before. REQUIRES: a run of the layers kept so far, not empty.
  void keep_layers(LayerRange layers);
  LayerRange kept_layers() const;

  using LayerMaps = std::map<int, at::Tensor>;  // keyed by their layers
  // Runs the kept layers. `received` holds the map of every other layer that
  // they read; `images` may be undefined unless a kept layer reads them.
  // Returns the maps of layers `wanted`, in that order, or the heads if the
  // last layer is kept; nothing can be wanted beside the heads. A map is
  // released once the last kept layer has read it, unless it is wanted.
  std::vector<at::Tensor> forward_layers(LayerMaps received,
                                         const at::Tensor& images,
                                         const StepContext& context,
                                         const std::vector<int>& wanted);

  // Heads to boxes: [N, rows, 5 + num_classes], xywh in pixels, scores after
  // the sigmoid; rows ordered level, anchor, y, x. first_rows[level]: where
  // heads that hold some rows of an image begin; empty: they hold all.
  // REQUIRES: the last layer kept.
  at::Tensor decode(const std::vector<at::Tensor>& heads,
                    const std::vector<int64_t>& first_rows = {}) const;

  // All state in state-dict order. Pointers stay valid until keep_layers()
  // drops their layer or the graph is destroyed.
  NamedTensors state();

  // A batch-norm layer's slice of StepContext::batch_norm_sums, and what the
  // commit moves.
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
  // Read from the state: loading weights may change anchors. Valid until the
  // next call.
  const std::vector<Level>& levels() const;
  int64_t num_classes() const;
  int64_t input_channels() const;
  int64_t max_stride() const;
  int64_t num_layers() const;  // the table's, kept or not

  // What each layer of the table reads: earlier layers, or -1 for the images.
  const std::vector<std::vector<int>>& inputs() const;
  // Each layer's output, kept or not; the head's is unset.
  const std::vector<layers::MapShape>& map_shapes() const;

  // The state entries of layers [0, num_layers_frozen) stop learning.
  void freeze(int64_t num_layers_frozen);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::model
