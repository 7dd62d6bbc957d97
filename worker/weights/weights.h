// weights: a model's state under YOLOv5's names: in from safetensors files and
// from YOLOv5's own checkpoints (weights_file.h), out to safetensors.
//
// Two ways in: kStrict for the same model (validation, resuming), kTransfer for
// a head start (another number of classes, another size): what matches by name
// and shape is taken, the rest stays as it is. Values are converted to the
// model's type; float16 and bfloat16 files load into float32 and float64.
//
// Errors: Error naming the file, the tensor and both shapes; nothing is changed
// then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"
#include "worker/weights/safetensors.h"

namespace headroom::weights {

// All entries of `state`, in the types they have.
void save_weights(const std::filesystem::path& path,
                  const model::NamedTensors& state,
                  const std::map<std::string, std::string>& metadata);

enum class LoadMode { kStrict, kTransfer };

struct LoadOptions {
  LoadMode mode = LoadMode::kStrict;
  // kTransfer: keep the model's own anchors.
  bool keep_anchors = false;
};

struct LoadReport {
  int64_t transferred = 0;
  int64_t total = 0;                 // entries of the model's state
  std::vector<std::string> skipped;  // entries left as they were
  // Why, one for each: "model.24.m.0.bias is [255] there and [24] here".
  std::vector<std::string> differences;
  std::map<std::string, std::string> metadata;
};
// "Transferred 343/349 items from yolov5s.pt; left as they were:
//  model.24.m.0.bias is [255] there and [24] here, ..." (the first three).
std::string to_string(const LoadReport& report,
                      const std::filesystem::path& path);

// kStrict: every entry is in the file with its shape, and nothing else is.
LoadReport load_weights(const std::filesystem::path& path,
                        model::LayerGraph& graph, const LoadOptions& options);
// The same for a file that was read already; `path` is what errors name.
LoadReport load_weights(const std::filesystem::path& path,
                        const Safetensors& file, model::LayerGraph& graph,
                        const LoadOptions& options);

// How many classes the head of these weights has, if the model is that table's;
// nothing where they have no head that such a model could have.
std::optional<int64_t> head_classes(const Safetensors& file,
                                    const layers::ModelTable& table);

}  // namespace headroom::weights
