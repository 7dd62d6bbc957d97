// ImageFile: a file open for reading, for decoders that read as they go. They
// refuse a file by throwing ImageRefusal, which image.cpp catches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

namespace headroom::codecs {

class ImageRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ImageFile {
 public:
  // Throws ImageRefusal: missing, not a regular file, empty, longer than
  // `max_bytes`.
  ImageFile(const std::filesystem::path& file, int64_t max_bytes);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;

  int64_t size() const { return size_; }

  // Fills `buffer` from `offset` on; fewer bytes only where the file ends or
  // cannot be read. Never throws: C libraries call it.
  size_t read_at(int64_t offset, std::span<uint8_t> buffer) noexcept;

  // All of it. Throws ImageRefusal if it cannot be read.
  std::vector<uint8_t> read_all();

 private:
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace headroom::codecs
