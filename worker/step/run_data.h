// RunData: the files that a run's configuration names, read: the model table,
// the classes, the data sets and their faults.
//
// Reads labels and image headers, never pixels. Every rank reads for itself.
// Errors: Error (exit 2 for the request, exit 4 for the data).
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
  // --cfg; otherwise the model of --weights; otherwise yolov5s.
  std::string model;
  layers::ModelTable table;
  std::vector<std::string> class_names;
  std::optional<labels::Dataset> training;    // none with synthetic input
  std::optional<labels::Dataset> validation;  // likewise
  std::vector<labels::DataReport> reports;
  std::optional<configs::RangeWish> range;  // data.yaml's

  int64_t num_classes() const {
    return static_cast<int64_t>(class_names.size());
  }
};

// Reads the splits train and val for `train`, the split config.task for `val`.
RunData read_data(const configs::RunConfig& config);

// The split that `val` judges.
labels::Split split_of(const configs::RunConfig& config);

// Messages for the run's start; "" if there is none.

// hyp.copy_paste has no effect with this data or these flags.
std::string note_on_copy_paste(const configs::RunConfig& config,
                               const RunData& inputs);

// Augmentations of colours are asked for, but images have bands or 16 bits
// instead.
std::string note_on_colours(const configs::RunConfig& config,
                            const RunData& inputs);

// --image-weights never draws some images.
std::string note_on_image_weights(const configs::RunConfig& config,
                                  const RunData& inputs);

// The type of weights and of all that is kept between steps.
at::ScalarType scalar_type_of(configs::Precision precision);
// The type of the network's maps in training.
at::ScalarType map_type_of(configs::Precision precision);

// The range of values of the run's images; none: 8 bits. A run that validates
// has that of its weights. Throws Error (exit 2).
ValueRanges value_ranges(const configs::RunConfig& config);

// data.yaml asks for another range than the run has, or for none where files
// have more than 8 bits.
std::string note_on_range(const configs::RunConfig& config,
                          const RunData& inputs);

// Options that all loaders of a run share; `model` must outlive them.
loader::LoaderOptions loader_options(const configs::RunConfig& config,
                                     const model::LayerGraph& model);

// Packs targets on loader threads for a device that computes the loss. Room for
// as many matches as there are, or, where a bound is given, as it is for
// graphs, for the most of a micro-batch.
loader::PackTargets target_packing(
    const model::LayerGraph& model,
    const std::optional<predict::LabelBound>& bound);

// The metadata of a weights file: its model, the classes and the input
// that it was trained with.
std::map<std::string, std::string> weights_metadata(
    const configs::RunConfig& config, const RunData& inputs, int64_t epoch);

}  // namespace headroom::step
