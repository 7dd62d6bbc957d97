// Safetensors files tensor by tensor, for states that never lie in one place.
//
// Ownership: each owns its open file; tensors read own their memory (CPU).
// Threads: one at a time; one writer per path.
// Errors: reading throws Error naming the file and what is wrong with it;
// writing throws Error with exit code 5 and leaves the old file as it was.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/file_digest.h"
#include "worker/weights/safetensors_header.h"

namespace headroom::weights {

// What a file says of a tensor before its values.
struct TensorDescription {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes;
};

at::ScalarType scalar_type_of(SafetensorsType type);

// Files have larger elements first, so that every tensor is aligned; order
// among equals is kept.
void order_for_file(std::vector<TensorDescription>& tensors);

class SafetensorsWriter {
 public:
  // Writes the header. REQUIRES: order_for_file's order; names are distinct
  // and not "__metadata__"; types are those of SafetensorsType.
  SafetensorsWriter(const std::filesystem::path& path,
                    std::vector<TensorDescription> tensors,
                    const std::map<std::string, std::string>& metadata);

  // The next one, in any memory layout; row-major on disk.
  void write(const at::Tensor& tensor);
  // Complete or not at all (atomic_file.h). REQUIRES: all are written.
  void commit();

  // Of all that was written so far; after commit(), of the file.
  int64_t num_bytes() const { return num_bytes_; }
  std::string digest() const { return digest_.hex(); }

 private:
  void put(const void* data, size_t num_bytes);

  AtomicFile file_;
  StreamDigest digest_;
  int64_t num_bytes_ = 0;
  std::vector<TensorDescription> tensors_;
  size_t next_ = 0;
};

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const SafetensorsHeader& header() const { return header_; }
  // REQUIRES: an entry of header(). Row-major.
  at::Tensor read(const SafetensorsEntry& entry);

 private:
  class InputFile;
  std::unique_ptr<InputFile> file_;
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;
};

}  // namespace headroom::weights
