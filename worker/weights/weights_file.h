// weights_file: named tensors of a file of weights, whatever its format.
//
// The content decides, not the suffix: safetensors, or a checkpoint of
// torch.save (YOLOv5's and ultralytics' .pt), which is read without executing
// anything (worker/pytorch_file). A checkpoint's metadata say the model, its
// class names and epoch, where it knows them, under the keys that a Headroom
// file has.
//
// Errors: Error naming the file and what is wrong with it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/weights/safetensors.h"

namespace headroom::weights {

Safetensors read_weights_file(const std::filesystem::path& path);

// Reads the metadata without the tensors.
std::map<std::string, std::string> read_weights_metadata(
    const std::filesystem::path& path);

// The anchors that a file of weights was trained with, in pixels; nothing where
// the file has none for as many levels and anchors as `table`, the model it
// holds.
std::optional<layers::AnchorList> anchors_in_weights(
    const std::filesystem::path& path, const layers::ModelTable& table);

// The classes that a file's metadata name; empty where they name none.
std::vector<std::string> class_names_of(
    const std::map<std::string, std::string>& metadata);

// The message to show where data and weights have the same number of classes
// by other names, or in another order: every box would be judged as another
// class. "": the names are the same, or the weights have none. `weights` and
// `data` are the files.
std::string class_name_note(const std::vector<std::string>& of_weights,
                            const std::vector<std::string>& of_data,
                            const std::string& weights,
                            const std::string& data);

}  // namespace headroom::weights
