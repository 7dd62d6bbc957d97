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
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::weights {

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
  uint64_t begin = 0;  // of the data, in bytes
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
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

}  // namespace headroom::weights
