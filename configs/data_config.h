// DataConfig: a data.yaml in any of YOLOv5's forms, with paths resolved.
//
//   path    optional root; relative to the yaml's folder, then the working one
//   train, val, test   a directory (searched recursively), a .txt list of image
//           paths ("./x" in it is relative to the list), or a list of these
//           train, val and test may also name a COCO JSON, a .geojson or a
//           .csv, or a split of a Pascal VOC folder (ImageSets/Main/train.txt
//           beside Annotations/), or the .index of packs that headroom pack
//           wrote
//   images  where the images of such a JSON or .csv are: one folder, or
//           {train: DIR, val: DIR}; without it, beside the file
//   names   a list, or {0: a, 1: b};  nc optional
//   range   the values that a network sees as 0 and 1 (range_wish.h); without
//           it, images have 8 bits
//   download   never run, never followed: named in a refusal only
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "configs/range_wish.h"

namespace headroom::configs {

// Class names go into JSON, TensorBoard and messages, all of which are UTF-8. A
// name that is not UTF-8 is refused here, and not only when a run is saved.
//
// Two classes of the same name are refused: no table could tell them apart.
//
// Errors: Error (exit 2) that names the file and the name's place in the list.

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file);

struct DataConfig {
  std::filesystem::path file;
  std::vector<std::string> names;            // the name of each class
  std::vector<std::filesystem::path> train;  // existing directories and lists
  std::vector<std::filesystem::path> val;
  std::vector<std::filesystem::path> test;  // may be empty
  // The folders of the images of each split's COCO JSON; "": beside the JSON.
  std::filesystem::path train_images, val_images, test_images;
  // Why `test` is empty although the file names one; "" otherwise.
  std::string test_split_error;
  std::optional<RangeWish> range;
};

// `file` may also be a Pascal VOC folder, with Annotations/ and
// ImageSets/Main/: its splits are train.txt, val.txt and test.txt, its classes
// those of `names` in its data.yaml, if it has one, else those of its
// annotations, sorted. A data.yaml whose `path` is such a folder need not name
// train and val.
//
// Throws Error with file:line:column: exit 2 for a missing file, bad YAML,
// unknown keys or wrong types (Ultralytics' extra keys are known and ignored),
// names with a gap, nc that disagrees, train or val images that are not there.
DataConfig load_data_config(const std::filesystem::path& file);

}  // namespace headroom::configs
