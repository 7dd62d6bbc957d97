// Split: one of a data set's three parts, and what its data.yaml says of it.
//
// Threads: pure functions. Errors: Error with exit 4.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/data_config.h"

namespace headroom::labels {

enum class Split : uint8_t { kTrain, kVal, kTest };

// "train".
std::string split_name(Split split);

// Its folders and lists. Throws Error if the data.yaml names none.
const std::vector<std::filesystem::path>& split_sources(
    const configs::DataConfig& config, Split split);

// Where the file names of a COCO JSON start; empty: at the JSON's own folder.
const std::filesystem::path& split_images(const configs::DataConfig& config,
                                          Split split);

}  // namespace headroom::labels
