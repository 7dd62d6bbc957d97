// PackIndex: the index of a split in packs. It has the position, size and
// labels of every image, so that a run starts without opening millions of
// files.
//
//   packs/data.yaml         names, and an index for each split
//   packs/train.index       this file
//   packs/train-00000.tar   images, each with its labels as YOLO text beside
//   packs/train-00001.tar   it; any program that reads tar can read them
//
// An image in a pack has an ordinary path: packs/train-00000.tar/NAME
// (packed_file.h), where NAME is its path in the data set that was packed.
//
// The layout of the file is described in image_index.h.
//
// Errors: throws Error (exit 4) for a file that is not an index, is cut off, or
// has a damaged header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/packs/image_index.h"

namespace headroom::packs {

inline constexpr const char* kIndexSuffix = ".index";

// Longer files are not packed, because a file is read into memory whole.
inline constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

class PackIndex {
 public:
  // `file` is the path of the index; the shards are in its folder.
  // `content.labels` is not used.
  PackIndex(std::filesystem::path file, IndexPart content);
  PackIndex(const PackIndex&) = delete;
  PackIndex& operator=(const PackIndex&) = delete;

  const std::filesystem::path& file() const { return file_; }
  int64_t size() const { return static_cast<int64_t>(content_.images.size()); }
  // The next three functions require 0 <= number < size().
  const IndexedImage& image(int64_t number) const {
    return content_.images[static_cast<size_t>(number)];
  }
  // Returns "" if the entry is damaged and points beyond the end of the names.
  std::string_view name(int64_t number) const {
    return content_.name(static_cast<size_t>(number));
  }
  std::filesystem::path path(int64_t number) const;
  // Returns the number of the image with that name, nullopt if there is none.
  std::optional<int64_t> find(std::string_view name) const;

  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shards.size());
  }
  std::filesystem::path shard(uint32_t number) const;

  struct ShardState {
    uint64_t bytes = 0;  // actual length of the file
    std::string fault;   // why it is missing or has another length, else ""
  };
  ShardState shard_state(uint32_t number) const;
  // Reads a whole shard. Returns how it is damaged, "" if it is not.
  std::string shard_damage(uint32_t number) const;

  // Reads into `bytes` from `offset` of the shard on. Returns why it failed, ""
  // if it succeeded. May be called from any thread.
  std::string read(uint32_t shard, uint64_t offset, void* bytes,
                   uint64_t num_bytes) const;

 private:
  std::shared_ptr<const OpenFile> open_shard(uint32_t number, bool anew) const;

  const std::filesystem::path file_;
  IndexPart content_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; nullptr if not open.
  mutable std::vector<std::shared_ptr<const OpenFile>> open_;
  mutable int num_open_ = 0;  // guarded by mutex_
};

// The file names of the index and of a shard: "train.index", "train-00003.tar".
std::string index_name(const std::string& split);
std::string shard_name(const std::string& split, uint32_t number);

// The checksum of an image's name, entry and labels.
uint32_t check_of(std::string_view name, IndexedImage image,
                  const ImageLabels& labels);

struct Pack {
  std::shared_ptr<const PackIndex> index;
  IndexedLabels labels;
  std::vector<int64_t> damaged;  // sorted numbers of damaged images
};
Pack read_pack(const std::filesystem::path& file);

// The index of a shard by the shard's path; nullptr if this process has not
// read that index yet.
std::shared_ptr<const PackIndex> known_index(const std::string& shard);

}  // namespace headroom::packs
