// RunData: the content of the files that a run's configuration names: the model
// table, the classes, the data sets and their faults.
//
// Reads labels and image headers, never pixels. Of the ranks that share memory
// one reads the data sets (worker/data/labels/shared_index.h); every rank reads
// the other files.
// Errors: Error (exit 2 if the request is wrong, exit 4 if the data is).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "configs/range_wish.h"
#include "configs/run_config.h"
#include "parallel/predict/label_bound.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader_options.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

struct RunData {
  // The model of --cfg; without --cfg, the model of --weights; without both,
  // yolov5s.
  std::string model;
  layers::ModelTable table;
  std::vector<std::string> class_names;
  std::vector<double> class_weights;        // hyp.cls_pw of each class
  std::optional<labels::Dataset> training;  // not set with synthetic input
  int64_t training_images = 0;  // number of images without --fraction
  std::optional<labels::Dataset> validation;  // not set with synthetic input
  std::vector<labels::DataReport> reports;
  std::optional<configs::RangeWish> range;  // value range in data.yaml
  std::string sharing_problem;  // why ranks do not share the index; usually ""

  int64_t num_classes() const {
    return static_cast<int64_t>(class_names.size());
  }
};

// Reads the splits train and val for `train`, the split config.task for `val`.
// `shared_index`: SharedFiles::index.
RunData read_data(const configs::RunConfig& config, int shared_index = -1);

labels::Split split_of(const configs::RunConfig& config);

// A message if hyp.copy_paste has no effect with this data or these flags;
// otherwise "".
std::string note_on_copy_paste(const configs::RunConfig& config,
                               const RunData& inputs);

// A message with the numbers of images if --fraction leaves some out; otherwise
// "".
std::string note_on_fraction(const configs::RunConfig& config,
                             const RunData& inputs);

// A message with the weights of the classes if they differ; otherwise "".
std::string note_on_class_weights(const configs::RunConfig& config,
                                  const RunData& inputs);

// A message if colour augmentations are set, but the images have bands or 16
// bits; otherwise "".
std::string note_on_colours(const configs::RunConfig& config,
                            const RunData& inputs);

// A message if --image-weights never draws some images; otherwise "".
std::string note_on_image_weights(const configs::RunConfig& config,
                                  const RunData& inputs);

// The type of weights and of all that is kept between steps.
at::ScalarType scalar_type_of(configs::Precision precision);
// The type of the network's maps in training.
at::ScalarType map_type_of(configs::Precision precision);

// The range of the image values; empty for 8 bits. A validation uses the range
// of its weights. Throws Error (exit 2).
ValueRanges value_ranges(const configs::RunConfig& config);

// A message if data.yaml and the run have different value ranges, or if there
// is no range although files have more than 8 bits; otherwise "".
std::string note_on_range(const configs::RunConfig& config,
                          const RunData& inputs);

// Options that all loaders of a run share; `model` must outlive them.
loader::LoaderOptions loader_options(const configs::RunConfig& config,
                                     const model::LayerGraph& model);

// Packs targets on loader threads for a device that computes the loss. A bound
// on labels (for graphs) reserves room for the most matches of a micro-batch.
loader::PackTargets target_packing(
    const model::LayerGraph& model,
    const std::optional<predict::LabelBound>& bound);

// The metadata of a weights file: its model, the classes and the input
// that it was trained with.
std::map<std::string, std::string> weights_metadata(
    const configs::RunConfig& config, const RunData& inputs, int64_t epoch);

}  // namespace headroom::step
