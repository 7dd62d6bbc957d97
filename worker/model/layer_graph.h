// LayerGraph: a detector as rows and edges, built from a model table.
//
// A row is one line of the YAML table (configs/model): its inputs, its module,
// its place in the state. The graph knows no ranks, files or plans; what spans
// ranks reaches it through StepContext.
//
// Shapes: images [N, 3, H, W] in channels-last memory, H and W multiples of
// max_stride(); heads[level] [N, anchors, H/stride, W/stride, 5 + num_classes]
// with fields x, y, w, h, objectness, classes, before the sigmoid.
// Ownership: owns its tensors.
// Threads: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/model_table.h"
#include "worker/model/named_tensor.h"
#include "worker/model/step_context.h"

namespace headroom {

class Row;  // worker/model/row.h

class LayerGraph {
 public:
  // Builds the rows with freshly initialised weights that follow from `seed`
  // and each tensor's name alone: Kaiming-uniform convolutions, the detection
  // bias of YOLOv5, running_var 0.9 and num_batches_tracked 1 as a fresh
  // YOLOv5 model holds them (its stride probe has touched them).
  // Throws Error with the table's file:line:column for an unknown module, wrong
  // arguments or a wrong edge.
  LayerGraph(const ModelTable& table, int64_t num_classes,
             at::ScalarType scalar_type, uint64_t seed);
  ~LayerGraph();
  LayerGraph(const LayerGraph&) = delete;
  LayerGraph& operator=(const LayerGraph&) = delete;

  // One tensor per detection level, finest first.
  std::vector<at::Tensor> forward(const at::Tensor& images,
                                  const StepContext& context);

  // Heads to boxes: [N, rows, 5 + num_classes], xywh in pixels, scores after
  // the sigmoid; rows ordered level, anchor, y, x. first_rows[level]: where
  // heads that hold some rows of an image begin; empty: they hold all.
  at::Tensor decode(const std::vector<at::Tensor>& heads,
                    const std::vector<int64_t>& first_rows = {}) const;

  // All state in state-dict order. Pointers stay valid for the graph's life.
  NamedTensors state();

  // A batch-norm layer's slice of StepContext::batch_norm_sums, and what the
  // commit moves.
  struct BatchNorm {
    std::string name;  // "model.0.bn"
    int64_t channels = 0;
    int64_t sums_offset = 0;  // in elements; the slice is [2, channels]
    at::Tensor* running_mean = nullptr;
    at::Tensor* running_var = nullptr;
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
  int64_t max_stride() const;
  int64_t num_rows() const;

  // The state entries of rows [0, num_rows_frozen) stop learning.
  void freeze(int64_t num_rows_frozen);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom
