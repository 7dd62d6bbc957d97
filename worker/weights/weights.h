// weights: loads and saves a model's state under YOLOv5's names. It loads
// safetensors files and YOLOv5's own checkpoints (weights_file.h), and saves
// safetensors.
//
// There are two ways to load. kStrict is for the same model (validation,
// resuming). kTransfer is for starting from another model (another number of
// classes, another size): tensors that match by name and shape are taken, the
// others keep their values. If the file and the data have some class names in
// common, or the same names in another order, the head's rows of these classes
// are taken by name, and so are its rows for boxes and objectness. Values are
// converted to the model's type; float16 and bfloat16 files load into float32
// and float64.
//
// Errors: Error with the file, the tensor and both shapes. After an error the
// model is unchanged.
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

// Saves all entries of `state` in their own types.
void save_weights(const std::filesystem::path& path,
                  const model::NamedTensors& state,
                  const std::map<std::string, std::string>& metadata);

enum class LoadMode { kStrict, kTransfer };

struct LoadOptions {
  LoadMode mode = LoadMode::kStrict;
  // Used with kTransfer: keep the model's own anchors.
  bool keep_anchors = false;
  // Used with kTransfer: the names of the model's classes, in order. If empty,
  // the head is loaded completely or not at all.
  std::vector<std::string> class_names = {};
};

struct LoadReport {
  int64_t transferred = 0;           // loaded entries, some of them in part
  int64_t total = 0;                 // number of entries in the model's state
  std::vector<std::string> skipped;  // names of entries that were not loaded
  // A text for each layer that was not loaded completely: "layer 24 (Detect):
  // 80 classes -> 3, started anew".
  std::vector<std::string> layers;
  std::map<std::string, std::string> metadata;
};
// A text with at most three layers: "transferred 343 of 349 tensors from
// yolov5s.pt; layer 24 (Detect): 80 classes -> 3, started anew".
std::string to_string(const LoadReport& report,
                      const std::filesystem::path& path);

// With kStrict the file must have exactly the model's entries and shapes.
LoadReport load_weights(const std::filesystem::path& path,
                        model::LayerGraph& graph, const LoadOptions& options);
// Loads a file that has been read already; `path` is used in errors.
LoadReport load_weights(const std::filesystem::path& path,
                        const Safetensors& file, model::LayerGraph& graph,
                        const LoadOptions& options);

// The number of classes in the head of the weights `file`; nullopt if the model
// `table` cannot have such a head.
std::optional<int64_t> head_classes(const Safetensors& file,
                                    const layers::ModelTable& table);

}  // namespace headroom::weights
