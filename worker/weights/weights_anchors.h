// anchors_in_weights: the anchors that a file of weights was trained with.
//
// Errors: Error naming the file, as read_weights_file. Threads: any.
#pragma once

#include <filesystem>
#include <optional>

#include "configs/layers/anchor_list.h"
#include "configs/layers/model_table.h"

namespace headroom::weights {

// In pixels; nothing where the file has none for as many levels and anchors as
// `table`, the model it holds.
std::optional<layers::AnchorList> anchors_in_weights(
    const std::filesystem::path& path, const layers::ModelTable& table);

}  // namespace headroom::weights
