// weights_file: named tensors of a file of weights, whatever its format.
//
// The content decides, not the suffix: safetensors, or a checkpoint of
// torch.save (YOLOv5's and ultralytics' .pt), which is read without executing
// anything (worker/pytorch_file). Of a checkpoint the metadata say the model,
// its class names and epoch, where it knows them, under the keys that a
// Headroom file has.
//
// Ownership: the tensors own their memory (CPU). Threads: any.
// Errors: Error naming the file and what is wrong with it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "worker/weights/safetensors.h"

namespace headroom::weights {

Safetensors read_weights_file(const std::filesystem::path& path);

// The metadata alone.
std::map<std::string, std::string> read_weights_metadata(
    const std::filesystem::path& path);

}  // namespace headroom::weights
