// model_table_text: a model table as the text of its file, and how a file of
// weights says which model it holds.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "configs/layers/model_table.h"

namespace headroom::layers {

// A layer, and an activation, as the file has them.
std::string layer_text(const ModelTable::Layer& layer);
std::string activation_text(const ActivationFunction& activation);

// Of a file that parses to `table`; its head is Detect alone.
std::string model_table_text(const ModelTable& table);

// What a file of weights says of its model under its metadata: "model", a name
// as --cfg takes it, and where the program ships no such model "table", the
// text of the model file.
std::map<std::string, std::string> model_metadata(const std::string& model,
                                                  const ModelTable& table);

// The reverse; throws Error where `file` says nothing.
ModelTable table_of_weights(const std::map<std::string, std::string>& metadata,
                            const std::string& file);

}  // namespace headroom::layers
