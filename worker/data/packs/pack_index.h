// PackIndex: where the images of a split lie in its packs, and what is known of
// them, so that a run starts without opening millions of files.
//
//   packs/data.yaml         names, and an index for each split
//   packs/train.index       this file
//   packs/train-00000.tar   images, and beside each its labels as YOLO text:
//   packs/train-00001.tar   any program that reads tar reads them
//
// An image in a pack has a path like any other: packs/train-00000.tar/NAME
// (packed_file.h), where NAME is its path in the data set that was packed.
//
// The file, numbers with the least significant byte first: a header with the
// sizes of what follows and its own digest; the shards' lengths; each image's
// place; names; numbers of images by rising name; then boxes and outlines.
//
// An image's entry has a check of its own: damage costs the images whose
// entries it struck, and these are known by their names.
//
// Errors: Error (exit 4) for a file that is no index, cut off, or damaged in
// its header.
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

namespace headroom::packs {

inline constexpr const char* kIndexSuffix = ".index";

// A longer file is not packed: it is held whole while it is read.
inline constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

struct PackedPlace {
  uint64_t offset = 0;  // the image's first byte in the shard
  uint64_t bytes = 0;
  uint64_t digest = 0;  // XXH3 of these bytes
  uint32_t shard = 0;
  int32_t height = 0, width = 0;  // upright
  // Whether a model that reads colours reads it: not a TIFF of other bands.
  uint32_t has_colours = 1;
  uint32_t check = 0;  // check_of()
  uint32_t reserved = 0;
};

struct PackedBox {
  int32_t class_index = 0;
  float cx = 0, cy = 0, w = 0, h = 0;  // 0..1
};
using PackedPoint = std::array<float, 2>;

// One image's.
struct ImageLabels {
  std::span<const PackedBox> boxes;
  // Where each box's outline ends in the split's points; none where the split
  // has no outline.
  std::span<const uint64_t> point_ends;
  std::span<const PackedPoint> points;
  uint64_t first_point = 0;  // the split's points before them
};

// A split's. An image's begin where those of the image before end.
struct PackedLabels {
  ImageLabels of(int64_t image) const;

  std::vector<uint64_t> box_ends;  // each image's
  std::vector<PackedBox> boxes;
  // Where each box's outline ends; none where the split has no outline.
  std::vector<uint64_t> point_ends;
  std::vector<PackedPoint> points;
};

class PackIndex {
 public:
  struct Content {
    std::vector<uint64_t> shard_bytes;
    std::vector<PackedPlace> places;
    std::vector<uint64_t> name_ends;  // in the text of all names
    std::string names;
    std::vector<uint32_t> by_name;  // numbers of images, by rising name
  };
  // `file`: the index's own path, whose folder has the shards.
  PackIndex(std::filesystem::path file, Content content);
  ~PackIndex();
  PackIndex(const PackIndex&) = delete;
  PackIndex& operator=(const PackIndex&) = delete;

  const std::filesystem::path& file() const { return file_; }
  int64_t size() const { return static_cast<int64_t>(content_.places.size()); }
  // REQUIRES of the next three: 0 <= image < size().
  const PackedPlace& place(int64_t image) const {
    return content_.places[static_cast<size_t>(image)];
  }
  std::string_view name(int64_t image) const;
  std::filesystem::path path(int64_t image) const;
  std::optional<int64_t> find(std::string_view name) const;

  int64_t num_shards() const {
    return static_cast<int64_t>(content_.shard_bytes.size());
  }
  std::filesystem::path shard(uint32_t number) const;
  // Why a shard has not all that it should: it is missing or has another
  // length; "" where it has.
  std::string shard_fault(uint32_t number) const;

  // Fills `bytes` from `offset` of the shard on. Returns why it could not, ""
  // where it could. From any thread.
  std::string read(uint32_t shard, uint64_t offset, void* bytes,
                   uint64_t num_bytes) const;

 private:
  int descriptor_of(uint32_t shard, bool& is_own) const;

  const std::filesystem::path file_;
  const Content content_;
  mutable std::mutex mutex_;
  mutable std::vector<int> descriptors_;  // guarded; -1: not open
  mutable int num_open_ = 0;              // guarded
};

// The index's file name, and a shard's: "train.index", "train-00003.tar".
std::string index_name(const std::string& split);
std::string shard_name(const std::string& split, uint32_t number);

// The check of an image's name, place and labels.
uint32_t check_of(std::string_view name, PackedPlace place,
                  const ImageLabels& labels);

struct Pack {
  std::shared_ptr<const PackIndex> index;
  PackedLabels labels;
  std::vector<int64_t> damaged;  // images whose check is wrong, rising
};
// All of it.
Pack read_pack(const std::filesystem::path& file);

// Without labels; the process reads a file once, and again when it has changed.
std::shared_ptr<const PackIndex> open_index(const std::filesystem::path& file);

// The bytes of an index.
std::string index_bytes(const PackIndex::Content& content,
                        const PackedLabels& labels);

}  // namespace headroom::packs
