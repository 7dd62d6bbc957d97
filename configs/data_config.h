// DataConfig: a data.yaml in any of YOLOv5's forms, with paths resolved.
//
//   path    optional root; relative to the yaml's folder, else to the working
//           directory
//   train, val, test   a directory (searched recursively), a .txt list of image
//           paths ("./x" in it is relative to the list), or a list of these
//           train, val and test may also name a COCO JSON, a .geojson or a
//           .csv, or a split of a Pascal VOC folder (ImageSets/Main/train.txt
//           beside Annotations/), or the .index of packs from headroom pack
//   images  the image folder of such a JSON or .csv: one folder, or
//           {train: DIR, val: DIR}; the default is the folder of that file
//   names   a list, or {0: a, 1: b};  nc optional
//   range   the pixel values that become 0 and 1 for the network
//           (range_wish.h); without `range`, images have 8 bits
//   download   never executed or downloaded, only shown in an error message
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "configs/range_wish.h"

namespace headroom::configs {

// Class names are written to JSON, TensorBoard and messages, which are UTF-8,
// so other names are refused here and not only when a run is saved.
//
// Two classes with the same name are refused: tables could not distinguish
// them.
//
// Errors: Error (exit 2) that names the file and the name's place in the list.

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file);

struct DataConfig {
  std::filesystem::path file;
  std::vector<std::string> names;            // the name of each class
  std::vector<std::filesystem::path> train;  // existing directories and lists
  std::vector<std::filesystem::path> val;
  std::vector<std::filesystem::path> test;  // empty if there are no test images
  // Folders of the images of each split's COCO JSON; "" means beside the JSON.
  std::filesystem::path train_images, val_images, test_images;
  // Why `test` is empty although the file names test images; else "".
  std::string test_split_error;
  std::optional<RangeWish> range;
  // Whether the labels are poses (`kpt_shape`): a class, a box and keypoints.
  bool has_keypoints = false;
  // Keys of the file that are not used, one line each.
  std::vector<std::string> notes;
};

// `file` may also be a Pascal VOC folder, with Annotations/ and
// ImageSets/Main/. Its splits are train.txt, val.txt and test.txt. Its classes
// are the `names` of its data.yaml if there is one, else the sorted classes of
// its annotations. A data.yaml with such a folder as `path` need not name train
// and val.
//
// Throws Error (exit 2) with file:line:column for a missing file, bad YAML,
// keys that are nearly one of the known keys (others are noted and ignored),
// wrong types, names with a gap, a wrong nc, and missing train or val images.
DataConfig load_data_config(const std::filesystem::path& file);

}  // namespace headroom::configs
