// RunInputs: what a run's configuration comes to once its files are read: the
// model table, the classes, the data sets and what was wrong with them.
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

#include "configs/model_table.h"
#include "configs/run_config.h"
#include "worker/data/dataset.h"
#include "worker/data/loader_options.h"
#include "worker/model/layer_graph.h"

namespace headroom {

struct RunInputs {
  // --cfg; else what --weights says it holds; else yolov5s.
  std::string model;
  ModelTable table;
  std::vector<std::string> class_names;
  std::optional<Dataset> training;  // neither with synthetic input
  std::optional<Dataset> validation;
  std::vector<DataReport> reports;

  int64_t num_classes() const {
    return static_cast<int64_t>(class_names.size());
  }
};

// For `train` the splits train and val, for `val` the split config.task.
RunInputs read_inputs(const RunConfig& config);

// The split that `val` judges.
Split split_of(const RunConfig& config);

// What people are told where hyp.copy_paste asks for what this data or these
// flags have no use for; "" otherwise.
std::string note_on_copy_paste(const RunConfig& config,
                               const RunInputs& inputs);

// The same where augmentations of colours are asked for, and images have bands
// instead.
std::string note_on_colours(const RunConfig& config, const RunInputs& inputs);

// How many images --image-weights never draws; "" for none.
std::string note_on_image_weights(const RunConfig& config,
                                  const RunInputs& inputs);

// Of weights and of all that is kept between steps.
at::ScalarType scalar_type_of(Precision precision);
// Of the network's maps in training.
at::ScalarType map_type_of(Precision precision);

// What every loader of a run has in common; `model` must outlive the options.
LoaderOptions loader_options(const RunConfig& config, const LayerGraph& model);

// What a weights file says about itself.
std::map<std::string, std::string> weights_metadata(const RunInputs& inputs,
                                                    int64_t epoch);

}  // namespace headroom
