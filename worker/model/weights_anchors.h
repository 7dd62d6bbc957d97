// anchors_in_weights: the anchors that a file of weights was trained with.
//
// Errors: Error naming the file, as read_weights_file. Threads: any.
#pragma once

#include <filesystem>
#include <optional>

#include "configs/anchor_list.h"
#include "configs/model_table.h"

namespace headroom {

// In pixels; nothing where the file has none for as many levels and anchors as
// `table`, the model it holds.
std::optional<AnchorList> anchors_in_weights(const std::filesystem::path& path,
                                             const ModelTable& table);

}  // namespace headroom
