// safetensors: named tensors in a file, read and written.
//
// The format of the field for weights: no code is executed, sizes are checked
// before anything is allocated, any program can read it (safetensors_header.h).
// Tensors are row-major on disk and in memory after reading, whatever the
// memory layout of what was written.
//
// Ownership: tensors read own their memory (CPU). Reading allocates the header
// and the tensors, never more than the file's size.
// Threads: any; one writer per path.
// Errors: reading throws Error naming the file and what is wrong with it;
// writing throws Error with exit code 5 and leaves the old file as it was.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/weights/safetensors_header.h"

namespace headroom::weights {

struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  // Throws Error naming `name` when it is not there.
  const at::Tensor& at(const std::string& name) const;
};

Safetensors read_safetensors(const std::filesystem::path& path);

// Names, shapes and metadata alone.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// Complete or not at all (atomic_file.h). Within the file, larger elements come
// first, so that every tensor is aligned; order among equals is kept.
// REQUIRES: names are distinct and not "__metadata__"; dtypes are those of
// SafetensorsType.
void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace headroom::weights
