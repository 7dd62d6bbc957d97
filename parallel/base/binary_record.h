// Binary records: whole numbers as bytes, the least significant first, and
// plain values one after another. Reading checks that the bytes are there.
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

// "\x01\x00" for the 16-bit 1.
template <std::integral Number>
std::string number_bytes(Number number) {
  std::string bytes;
  append_number(bytes, number);
  return bytes;
}

// The number that all of `bytes` are. REQUIRES: at most 8 bytes.
inline uint64_t number_of_bytes(std::string_view bytes) {
  HEADROOM_CHECK(bytes.size() <= sizeof(uint64_t),
                 cat(bytes.size(), " bytes of a number"));
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return number;
}

// The number that begins at byte `at`. REQUIRES: all of it is there.
template <std::integral Number>
Number number_at(std::string_view bytes, size_t at) {
  HEADROOM_CHECK(at <= bytes.size() && bytes.size() - at >= sizeof(Number),
                 cat("a number of ", sizeof(Number), " bytes at byte ", at,
                     " of ", bytes.size()));
  return static_cast<Number>(number_of_bytes(bytes.substr(at, sizeof(Number))));
}

// Values as they lie in memory, for processes that run the same build.
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

// Reads what a RecordWriter wrote, in the same order. REQUIRES: `bytes`
// outlives it.
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
  // Every element has a byte at least, so that a damaged size reserves nothing.
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
