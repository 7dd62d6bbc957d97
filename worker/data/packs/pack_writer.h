// PackWriter: the packs of one split, file by file.
//
// Errors: Error, exit 5 where a file cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/base/atomic_file.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::packs {

class PackWriter {
 public:
  // A shard ends before it would be longer than `shard_bytes`, but has a file.
  PackWriter(std::filesystem::path folder, std::string split,
             uint64_t shard_bytes);
  ~PackWriter();

  struct Image {
    std::string name;        // its path in the data set, without ".."
    std::string_view bytes;  // the file's; at most kMostFileBytes
    int32_t height = 0, width = 0;
    bool has_colours = true;
    // Outlines with every image of a split or with none.
    ImageLabels labels;
    std::string label_text;  // the lines of its label file
  };
  // REQUIRES: a name that is new.
  void add(const Image& image);

  // Writes the index. REQUIRES: once, and nothing after it.
  void finish();

  int64_t num_images() const {
    return static_cast<int64_t>(content_.places.size());
  }
  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shard_bytes.size());
  }
  uint64_t total_bytes() const;  // the shards'

 private:
  void append(std::string_view name, std::string_view bytes);
  void end_shard();

  const std::filesystem::path folder_;
  const std::string split_;
  const uint64_t shard_bytes_;
  std::unique_ptr<AtomicFile> shard_;  // null: the next file begins one
  PackIndex::Content content_;
  PackedLabels labels_;
};

}  // namespace headroom::packs
