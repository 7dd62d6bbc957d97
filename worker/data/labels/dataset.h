// Dataset: the index of one split: paths, sizes and boxes, never pixels.
//
// Built once when a process starts, by one process for all of its machine that
// share the memory (shared_index.h). Copies share the memory, too. A faulty
// label is repaired if possible, otherwise its box is left out. A faulty image
// is left out. The report lists all faults (data_report.h).
//
// Memory: about the path and 16 bytes per image, and 20 bytes per box. Outlines
// add 8 bytes per box and per point. An image in a pack takes 76 bytes and its
// name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::packs {
class PackIndex;
}

namespace headroom::labels {

struct IndexOptions {
  bool single_cls = false;     // all classes become class 0
  bool keep_outlines = false;  // whether to keep outlines of polygon labels
  int64_t num_threads = 8;     // threads for headers; slow disks need more
  codecs::ImageLimits limits;
  // Folder of the index with which the next process reads the data set faster
  // (folder_index.h); "" for no index.
  std::filesystem::path kept_in = {};
  // Tools call this function after each image, from any thread, with the split
  // and its total number of images.
  std::function<void(const std::string& split, int64_t images)> image_done = {};
};

class Dataset {
 public:
  int64_t size() const { return static_cast<int64_t>(sizes_.size()); }

  // All functions with an index require 0 <= index < size().
  std::filesystem::path path(int64_t index) const;
  // Height and width with the EXIF orientation applied.
  codecs::ImageSize image_size(int64_t index) const { return sizes_[index]; }
  // Boxes as fractions of the image, clipped to it, without duplicates.
  std::span<const BoxLabel> labels(int64_t index) const;
  // The labels' outlines; empty unless IndexOptions::keep_outlines is set.
  Outlines outlines(int64_t index) const;

  // Keeps these images and removes all others. REQUIRES: ascending indices,
  // without duplicates. If outlines are not kept, num_polygons() does not
  // change.
  void keep(const std::vector<int64_t>& images);

  std::span<const codecs::ImageSize> image_sizes() const { return sizes_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  int64_t num_labels() const { return static_cast<int64_t>(labels_.size()); }
  // Number of labels that are polygons.
  int64_t num_polygons() const { return num_polygons_; }

  // A hash of names, relative paths, file lengths, sizes and boxes: equal on
  // every node that holds the same data set, independent of where it is
  // mounted.
  uint64_t digest() const { return digest_; }

 private:
  friend class DatasetBuilder;
  friend class SharedIndex;

  // Used in place of paths for images in packs: the pack and the image's number
  // in its index.
  struct PackedImage {
    uint32_t pack = 0, number = 0;
  };
  struct Arrays;  // the arrays below, while they grow
  void hold(Arrays arrays);

  // The memory of the arrays: an Arrays, or memory that processes share
  // (shared_index.h).
  std::shared_ptr<const void> memory_;
  std::span<const char> path_text_;         // all paths, one after another
  std::span<const uint64_t> path_offsets_;  // size() + 1 entries
  std::vector<std::shared_ptr<const packs::PackIndex>> packs_;
  std::span<const PackedImage> packed_;
  std::span<const codecs::ImageSize> sizes_;
  std::span<const BoxLabel> labels_;         // all boxes, image after image
  std::span<const uint64_t> label_offsets_;  // size() + 1 entries
  // The points of all outlines, box after box, and for each box the index after
  // its last point.
  std::span<const IndexedPoint> points_;
  std::span<const uint64_t> point_ends_;
  std::vector<std::string> class_names_;
  int64_t num_polygons_ = 0;
  uint64_t digest_ = 0;
};

struct ImageBoxes {
  int64_t boxes = 0;
  int64_t polygons = 0;  // boxes that are polygons
};

struct IndexedDataset {
  Dataset dataset;
  DataReport report;
  // Box counts of the images that were left out because they cannot be decoded.
  // An image whose labels cannot be read is not listed.
  std::vector<ImageBoxes> undecodable;
};

// Throws Error (exit 4) if the split is empty or unreadable, if no image or no
// box is left, or if a label has a class beyond `names` (the message has
// file:line).
IndexedDataset index_dataset(const configs::DataConfig& config, Split split,
                             const IndexOptions& options = {});

// Why training refuses a split of which no image or no box can be used, and
// what to do. `images` are all images of the split.
Error empty_split(const configs::DataConfig& config, const DataReport& report,
                  const std::vector<SplitImage>& images);

struct BoxCounts {
  // One number for each image. Images whose labels cannot be read are left out.
  std::vector<int64_t> boxes;
  int64_t polygons = 0;  // boxes that are polygons
};

// Counts boxes using only the labels, without opening images, so that thousands
// of images take a fraction of a second. (If boxes are in pixels, image headers
// are read.) Images that cannot be decoded are counted although training leaves
// them out. Counts are in the order of the data set. Throws Error (exit 4) if
// the split is empty.
BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options);

// Returns the counts of a data set that is already indexed; images that cannot
// be decoded are listed last.
BoxCounts count_boxes(const IndexedDataset& indexed);

}  // namespace headroom::labels
