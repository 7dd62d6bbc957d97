// Binary records: integers in little-endian byte order, and trivially copyable
// values one after another. The readers check that enough bytes are left.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom {

template <std::integral Number>
void append_number(std::string& bytes, Number number) {
  using Bits = std::make_unsigned_t<Number>;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    bytes += static_cast<char>(static_cast<Bits>(number) >> (8 * i) & 0xff);
  }
}

// number_bytes(uint16_t{1}) is "\x01\x00".
template <std::integral Number>
std::string number_bytes(Number number) {
  std::string bytes;
  append_number(bytes, number);
  return bytes;
}

// Reads all of `bytes` as one little-endian number. REQUIRES: at most 8 bytes.
inline uint64_t number_of_bytes(std::string_view bytes) {
  HEADROOM_CHECK(bytes.size() <= sizeof(uint64_t),
                 cat(bytes.size(), " bytes of a number"));
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return number;
}

// Reads the number that begins at byte `at`. REQUIRES: it ends within `bytes`.
template <std::integral Number>
Number number_at(std::string_view bytes, size_t at) {
  HEADROOM_CHECK(at <= bytes.size() && bytes.size() - at >= sizeof(Number),
                 cat("a number of ", sizeof(Number), " bytes at byte ", at,
                     " of ", bytes.size()));
  return static_cast<Number>(number_of_bytes(bytes.substr(at, sizeof(Number))));
}

// Writes values with their memory layout, for processes of the same build.
class RecordWriter {
 public:
  template <typename T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  template <typename T>
  void size(const T& values) {
    value(static_cast<int64_t>(values.size()));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads values that a RecordWriter wrote, in the same order. REQUIRES: `bytes`
// outlives the reader.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  void value(T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    HEADROOM_CHECK(bytes_.size() >= sizeof v,
                   cat("a value of ", sizeof v, " bytes, but ", bytes_.size(),
                       " are left"));
    std::memcpy(&v, bytes_.data(), sizeof v);
    bytes_.remove_prefix(sizeof v);
  }
  // Resizes `values` to the size that was written. An element takes at least
  // one byte, so a size above the number of bytes that are left is refused: a
  // damaged record causes no huge allocation.
  template <typename T>
  void size(T& values) {
    int64_t size = 0;
    value(size);
    HEADROOM_CHECK(
        size >= 0 && static_cast<uint64_t>(size) <= bytes_.size(),
        cat(size, " values, but ", bytes_.size(), " bytes are left"));
    values.resize(static_cast<size_t>(size));
  }

 private:
  std::string_view bytes_;
};

}  // namespace headroom
