// weights_file: reads the named tensors of a file of weights of any format.
//
// The format is recognised by the content, not the suffix. Supported are
// safetensors and checkpoints of torch.save (the .pt files of YOLOv5 and
// ultralytics), which are read without executing code (worker/pytorch_file). A
// checkpoint's model, class names and epoch are returned as metadata, under the
// keys that Headroom's files use. The model of a head without anchors is
// recognised by its tensors (recognised_network.h).
//
// Errors: Error with the file and its fault.
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

// Whether Headroom wrote this file of weights. Returns false for a file that
// cannot be read.
bool are_weights_of_ours(const std::filesystem::path& path);

// Throws Error (exit 2) if there is a file at `path` with content that Headroom
// did not write as weights. `tag` and `remedy` are the error's.
void require_replaceable_weights(const std::filesystem::path& path,
                                 const std::string& tag,
                                 const std::string& remedy);

// The anchors, in pixels, with which a file of weights was trained. `table` is
// the model of the file. Returns nullopt if the file has no anchors for its
// numbers of levels and anchors, or if the model has none.
std::optional<layers::AnchorList> anchors_in_weights(
    const std::filesystem::path& path, const layers::ModelTable& table);

// The class names in a file's metadata; empty if there are none.
std::vector<std::string> class_names_of(
    const std::map<std::string, std::string>& metadata);

// A warning for users if data and weights have equally many classes, but with
// other names or in another order: boxes would be compared with other classes.
// Returns "" if the names are equal or the weights have no names. `weights` and
// `data` are the file names.
std::string class_name_note(const std::vector<std::string>& of_weights,
                            const std::vector<std::string>& of_data,
                            const std::string& weights,
                            const std::string& data);

}  // namespace headroom::weights
