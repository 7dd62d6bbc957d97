// Dataset: the index of one split: paths, sizes and boxes, never pixels.
//
// Built once per process at start; a line or an image that is faulty costs
// that box or that image, is repaired where it can be, and is named in the
// report (data_report.h).
//
// Memory: about path + 16 bytes per image and 20 bytes per box; with outlines
// 8 bytes more per box and per point. An image in a pack: 76 bytes and its
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
#include "worker/data/codecs/image.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::packs {
class PackIndex;
}

namespace headroom::labels {

struct KnownImage;

struct IndexOptions {
  bool single_cls = false;     // all classes become class 0
  bool keep_outlines = false;  // outlines of polygon labels
  int64_t num_threads = 8;     // image headers are read in parallel
  codecs::ImageLimits limits;
  // Where what is found out about files is kept for the next start
  // (folder_index.h); "": nowhere.
  std::filesystem::path kept_in = {};
  // Is told, from any thread, of each image that a tool has gone through, with
  // its split and how many images that has.
  std::function<void(const std::string& split, int64_t images)> image_done = {};
};

class Dataset {
 public:
  int64_t size() const { return static_cast<int64_t>(sizes_.size()); }

  // REQUIRES of these three: 0 <= index < size().
  std::filesystem::path path(int64_t index) const;
  // Height and width with the EXIF orientation applied.
  codecs::ImageSize image_size(int64_t index) const { return sizes_[index]; }
  // Normalised to the image, clipped to it, no duplicates.
  std::span<const BoxLabel> labels(int64_t index) const;
  // The labels' outlines; none unless IndexOptions::keep_outlines.
  Outlines outlines(int64_t index) const;

  const std::vector<codecs::ImageSize>& image_sizes() const { return sizes_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  int64_t num_labels() const { return static_cast<int64_t>(labels_.size()); }
  // Labels that are polygons.
  int64_t num_polygons() const { return num_polygons_; }

  // A hash of names, relative paths, file lengths, sizes and boxes: equal on
  // every node that holds the same data set, wherever it is mounted.
  uint64_t digest() const { return digest_; }

 private:
  friend class DatasetBuilder;

  std::string path_text_;               // all paths, one after another
  std::vector<uint64_t> path_offsets_;  // size() + 1
  // Images in packs instead: which pack, and their numbers in its index.
  struct PackedImage {
    uint32_t pack = 0, number = 0;
  };
  std::vector<std::shared_ptr<const packs::PackIndex>> packs_;
  std::vector<PackedImage> packed_;
  std::vector<codecs::ImageSize> sizes_;
  std::vector<BoxLabel> labels_;         // all boxes, image after image
  std::vector<uint64_t> label_offsets_;  // size() + 1
  // Outlines that are kept, box after box, and where each box's end.
  std::vector<IndexedPoint> points_;
  std::vector<uint64_t> point_ends_;
  std::vector<std::string> class_names_;
  int64_t num_polygons_ = 0;
  uint64_t digest_ = 0;
};

// How many boxes an image has.
struct ImageBoxes {
  int64_t boxes = 0;
  int64_t polygons = 0;  // How many of the boxes are polygons.
};

struct IndexedDataset {
  Dataset dataset;
  DataReport report;
  // How many boxes the images have that were left out because no decoder takes
  // them, as far as their labels can be read.
  std::vector<ImageBoxes> undecodable;
};

// Throws Error with exit 4: the split is empty or unreadable, no image or no
// box is left, or a label has a class beyond `names` (file:line).
IndexedDataset index_dataset(const configs::DataConfig& config, Split split,
                             const IndexOptions& options = {});

// The next three functions count the boxes of images from their label files
// alone: thousands of images take a fraction of a second, for none is opened.
// (For formats whose boxes are in pixels, the headers of images are read.) An
// image that cannot be decoded counts here and is left out of training.

// The boxes of one image; nothing if its labels cannot be read. `known`: what
// an earlier start found; null: nothing.
std::optional<ImageBoxes> count_boxes(const SplitImage& image,
                                      const codecs::ImageLimits& limits,
                                      const KnownImage* known = nullptr);

struct BoxCounts {
  // One number an image; images whose labels cannot be read are left out.
  std::vector<int64_t> boxes;
  int64_t polygons = 0;  // how many of all these boxes are polygons
};

// Counts boxes in order of path. Throws Error (exit 4) if the split is empty.
BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options);

// The images that cannot be decoded come last.
BoxCounts count_boxes(const IndexedDataset& indexed);

}  // namespace headroom::labels
