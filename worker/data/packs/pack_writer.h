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

struct XXH3_state_s;

namespace headroom::packs {

class PackWriter {
 public:
  // A shard ends before it would be longer than `shard_bytes`, but has a file.
  PackWriter(std::filesystem::path folder, std::string split,
             uint64_t shard_bytes);
  ~PackWriter();

  struct Image {
    std::string name;        // its path in the data set, without ".."
    std::string_view bytes;  // those of the file; at most kMostFileBytes
    int32_t height = 0, width = 0;
    bool has_colours = true;
    ImageLabels labels;
    std::string label_name;  // its label file's in the archive
    std::string label_text;  // the lines of that file
  };
  // REQUIRES: names that are new.
  void add(const Image& image);

  // Writes the index. REQUIRES: once, and nothing after it.
  void finish();

  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shards.size());
  }
  uint64_t total_bytes() const;  // the shards'

 private:
  void write(std::string_view bytes);
  void append(std::string_view name, std::string_view bytes);
  void begin_shard();
  void end_shard();

  const std::filesystem::path folder_;
  const std::string split_;
  const uint64_t shard_bytes_;
  std::unique_ptr<AtomicFile> shard_;  // null: the next file begins one
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> digest_;
  PackIndex::Content content_;
  PackedLabels labels_;
};

}  // namespace headroom::packs
