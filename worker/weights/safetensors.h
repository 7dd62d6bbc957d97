// Safetensors files tensor by tensor, for states that never lie in one place.
//
// Tensors that are read own their memory (CPU). A path has one writer at a
// time. Errors: reading throws Error naming the file and what is wrong with it;
// writing throws Error with exit code 5 and leaves the old file as it was.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"

namespace headroom::weights {

// SafetensorsHeader: what a safetensors file says about itself, checked.
//
// A file is an 8-byte little-endian header length, a JSON header and the data:
//   {"__metadata__": {"key": "text"},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// Offsets count from the end of the header. Data is row-major, little-endian.
//
// Files come from strangers, so parsing checks everything before anybody
// allocates by it: known dtypes, shape products without overflow, sizes that
// agree with the offsets, and data that is covered without hole or overlap.
// Memory: a small multiple of the text.

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

enum class SafetensorsType {
  kF64,
  kF32,
  kF16,
  kBf16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool
};
// "F32"; the size of one element in bytes.
const char* to_string(SafetensorsType type);
int64_t size_of(SafetensorsType type);

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // the data's first byte
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by their data
  std::map<std::string, std::string> metadata;
};

// `data_bytes`: what follows the header in the file. `file` names it in errors.
// Throws Error saying what is wrong, with the tensor's name.
SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           uint64_t data_bytes,
                                           const std::string& file);

// The header's text for entries whose offsets are set, padded with spaces so
// that the data begins at a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header);

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

  // Writes the next tensor, of any memory layout, row-major.
  void write(const at::Tensor& tensor);
  // Complete or not at all (atomic_file.h). REQUIRES: all are written.
  void commit();

  // Both count what was written so far; after commit(), the whole file.
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

// Named tensors in a file, read and written: the usual format for weights: no
// code is executed, sizes are checked before anything is allocated, any program
// can read it. Tensors are row-major on disk and in memory after reading,
// whatever the memory layout of what was written.
//
// Reading allocates the header and the tensors, never more than the file's
// size.
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
