// PackIndex: the index of a split in packs. It has the position and the known
// facts of every image, so that a run starts without opening millions of files.
//
//   packs/data.yaml         names, and an index for each split
//   packs/train.index       this file
//   packs/train-00000.tar   images, each with its labels as YOLO text beside
//   it; packs/train-00001.tar   any program that reads tar can read them
//
// An image in a pack has an ordinary path: packs/train-00000.tar/NAME
// (packed_file.h), where NAME is its path in the data set that was packed.
//
// The parts of the file follow each other without gaps. Numbers are
// little-endian.
//
//   part     element                          how many
//   header   PackHeader, 64 bytes             1
//   shards   PackedShard, 16 bytes            header.shards
//   images   PackedImage, 80 bytes            header.images
//   names    the names' bytes                 header.name_bytes
//   by name  numbers of images, 4 bytes each, header.images
//            by rising name
//   boxes    PackedBox, 24 bytes              header.boxes
//   points   x and y of outlines, 8 bytes     header.points
//
// An image's entry says where its name, boxes and points are, and has a
// checksum of them. So damage affects only the images whose bytes it hits.
//
// Errors: throws Error (exit 4) for a file that is not an index, is cut off, or
// has a damaged header.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/packs/packed_file.h"

namespace headroom::packs {

inline constexpr const char* kIndexSuffix = ".index";

// Longer files are not packed, because a file is read into memory whole.
inline constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

struct PackedShard {
  uint64_t bytes = 0;
  uint64_t digest = 0;  // XXH3 of the whole shard
};

struct PackedImage {
  uint64_t offset = 0;  // position of the image's first byte in the shard
  uint64_t bytes = 0;
  uint64_t digest = 0;  // XXH3 of the image's bytes
  // Where the image's own name, boxes and points begin.
  uint64_t first_name_byte = 0, first_box = 0, first_point = 0;
  uint32_t name_bytes = 0, num_boxes = 0, num_points = 0;
  uint32_t shard = 0;
  int32_t height = 0, width = 0;  // upright
  // 1 if a model that reads colours can read it; 0 for a TIFF of bands.
  uint32_t has_colours = 1;
  uint32_t check = 0;  // check_of()
};

struct PackedBox {
  int32_t class_index = 0;
  float cx = 0, cy = 0, w = 0, h = 0;  // fractions of the image
  uint32_t num_points = 0;             // of its outline; stored box after box
};
using PackedPoint = std::array<float, 2>;

struct ImageLabels {
  std::span<const PackedBox> boxes;
  std::span<const PackedPoint> points;
};

struct PackedLabels {
  // REQUIRES: the image is not damaged.
  ImageLabels of(const PackedImage& image) const;

  std::vector<PackedBox> boxes;
  std::vector<PackedPoint> points;
};

class PackIndex {
 public:
  struct Content {
    std::vector<PackedShard> shards;
    std::vector<PackedImage> images;
    std::string names;
    std::vector<uint32_t> by_name;
  };
  // `file` is the path of the index; the shards are in its folder. If
  // content.by_name is not sorted by name, it is rebuilt.
  PackIndex(std::filesystem::path file, Content content);
  PackIndex(const PackIndex&) = delete;
  PackIndex& operator=(const PackIndex&) = delete;

  const std::filesystem::path& file() const { return file_; }
  int64_t size() const { return static_cast<int64_t>(content_.images.size()); }
  // The next three require 0 <= number < size().
  const PackedImage& image(int64_t number) const {
    return content_.images[static_cast<size_t>(number)];
  }
  // Empty if the entry is damaged and points beyond the end of the names.
  std::string_view name(int64_t number) const;
  std::filesystem::path path(int64_t number) const;
  const std::vector<uint32_t>& order_by_name() const {
    return content_.by_name;
  }
  // The number of the image with that name.
  std::optional<int64_t> find(std::string_view name) const;

  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shards.size());
  }
  std::filesystem::path shard(uint32_t number) const;

  struct ShardState {
    uint64_t bytes = 0;  // actual length
    std::string fault;   // missing or of another length; "" if neither
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
  Content content_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; nullptr if not open.
  mutable std::vector<std::shared_ptr<const OpenFile>> open_;
  mutable int num_open_ = 0;  // guarded by mutex_
};

// The file names of the index and of a shard: "train.index", "train-00003.tar".
std::string index_name(const std::string& split);
std::string shard_name(const std::string& split, uint32_t number);

// The checksum of an image's name, entry and labels.
uint32_t check_of(std::string_view name, PackedImage image,
                  const ImageLabels& labels);

struct Pack {
  std::shared_ptr<const PackIndex> index;
  PackedLabels labels;
  std::vector<int64_t> damaged;  // sorted numbers of damaged images
};
Pack read_pack(const std::filesystem::path& file);

// The index of a shard by the shard's path; nullptr if this process has not
// read that index yet.
std::shared_ptr<const PackIndex> known_index(const std::string& shard);

std::string index_bytes(const PackIndex::Content& content,
                        const PackedLabels& labels);

}  // namespace headroom::packs
