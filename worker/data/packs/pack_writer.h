// PackWriter: writes the packs of one split, image by image.
//
// Errors: throws Error, exit 5 if a file cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/base/atomic_file.h"
#include "worker/data/packs/image_index.h"

struct XXH3_state_s;

namespace headroom::packs {

class PackWriter {
 public:
  // A shard ends before it would exceed `shard_bytes`, but contains at least
  // one image. Larger shards mean fewer files; smaller shards are easier to
  // copy and to replace.
  PackWriter(std::filesystem::path folder, std::string split,
             uint64_t shard_bytes);
  ~PackWriter();

  struct Image {
    std::string name;        // the image's path in the data set, without ".."
    std::string_view bytes;  // the image file's content; at most kMostFileBytes
    int32_t height = 0, width = 0;
    bool has_colours = true;
    ImageLabels labels;
    std::string label_name;  // name of the label file in the archive
    std::string label_text;  // content of the label file
  };
  // REQUIRES: the names have not been used before.
  void add(const Image& image);

  // Writes the index. REQUIRES: called once, as the last call.
  void finish();

  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shards.size());
  }
  uint64_t total_bytes() const;  // total of all shards

 private:
  void write(std::string_view bytes);
  void append(std::string_view name, std::string_view bytes);
  void begin_shard();
  void end_shard();

  const std::filesystem::path folder_;
  const std::string split_;
  const uint64_t shard_bytes_;
  std::unique_ptr<AtomicFile> shard_;  // nullptr before a shard begins
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> digest_;
  IndexPart content_;
};

}  // namespace headroom::packs
