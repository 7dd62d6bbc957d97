// run_files: what the files of a run are called, where more than one room has
// to know it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "configs/run_config.h"

namespace headroom::configs {

// Marks a folder that holds an older run's files until the new one there has
// committed a step.
inline constexpr const char* kOlderRun = ".older-run";

// A checkpoint is written at the latest so long after the one before, beside
// those after each epoch: what a lost machine costs at most.
inline constexpr int64_t kSecondsBetweenCheckpoints = 60;

// last.safetensors, best.safetensors, epoch12.safetensors
bool is_weights_of_run(const std::string& file_name);

// Throws Error (exit 2) where a new run in `run_directory` would replace a file
// that it starts from (--exist-ok), its --config among them ("" for none).
void require_inputs_kept(const RunConfig& config,
                         const std::string& config_file,
                         const std::filesystem::path& run_directory);

}  // namespace headroom::configs
