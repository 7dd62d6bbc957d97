// Reads and writes safetensors files tensor by tensor, for states that are too
// large or too distributed to be in memory as a whole.
//
// Tensors that are read own their memory (CPU). A path may have one writer at a
// time. Errors: reading throws Error with the file and its fault; writing
// throws Error with exit code 5 and leaves the old file unchanged.
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

// SafetensorsHeader: the checked header of a safetensors file.
//
// A file is an 8-byte little-endian header length, a JSON header and the data:
//   {"__metadata__": {"key": "text"},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// Offsets count from the end of the header. Data is row-major, little-endian.
//
// Files may come from untrusted sources. So parsing checks the whole header
// before memory is allocated by its values: known dtypes, shapes whose product
// does not overflow, sizes that agree with the offsets, and data without gaps
// or overlaps. Memory: a small multiple of the header's size.

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
// to_string() returns "F32"; size_of() the size of one element in bytes.
const char* to_string(SafetensorsType type);
int64_t size_of(SafetensorsType type);

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offset of the first data byte
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by position of their data
  std::map<std::string, std::string> metadata;
};

// `data_bytes` is the length of the data after the header. `file` is the name
// used in errors. Throws Error with the fault and the tensor's name.
SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           uint64_t data_bytes,
                                           const std::string& file);

// The header's text for entries with offsets, padded with spaces so that the
// data begins at a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header);

// The description of a tensor in a file, without its values.
struct TensorDescription {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes;
};

at::ScalarType scalar_type_of(SafetensorsType type);

// Sorts tensors by element size, largest first, so that every tensor in the
// file is aligned. Tensors of equal element size keep their order.
void order_for_file(std::vector<TensorDescription>& tensors);

class SafetensorsWriter {
 public:
  // Writes the header. REQUIRES: tensors in the order of order_for_file;
  // distinct names other than "__metadata__"; types that SafetensorsType has.
  SafetensorsWriter(const std::filesystem::path& path,
                    std::vector<TensorDescription> tensors,
                    const std::map<std::string, std::string>& metadata);

  // Writes the next tensor row-major, whatever its memory layout.
  void write(const at::Tensor& tensor);
  // Makes the complete file visible under its name; if this fails, the old file
  // is kept (atomic_file.h). REQUIRES: all tensors are written.
  void commit();

  // Number of bytes written so far; after commit(), of the whole file.
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
  // Returns a row-major tensor. REQUIRES: an entry of header().
  at::Tensor read(const SafetensorsEntry& entry);

 private:
  class InputFile;
  std::unique_ptr<InputFile> file_;
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;
};

// Reads and writes files of named tensors, the usual format for weights: no
// code is executed, sizes are checked before anything is allocated, and any
// program can read it. On disk, and in memory after reading, tensors are
// row-major, whatever the memory layout of the written ones.
//
// Reading allocates the header and the tensors, never more than the file's
// size.
struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  // Returns the tensor `name`. Throws Error with the name if it is missing.
  const at::Tensor& at(const std::string& name) const;
};

Safetensors read_safetensors(const std::filesystem::path& path);

// Reads only names, shapes and metadata.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// Writes the complete file or none (atomic_file.h). In the file, tensors are
// ordered as by order_for_file(). REQUIRES: distinct names other than
// "__metadata__"; dtypes that SafetensorsType has.
void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace headroom::weights
