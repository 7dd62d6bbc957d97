// The images and boxes of a split of a Pascal VOC folder.
//
//   FOLDER/ImageSets/Main/train.txt   a stem a line; what follows it is ignored
//   FOLDER/Annotations/STEM.xml       object: name, bndbox: xmin ymin xmax ymax
//   FOLDER/JPEGImages/**/STEM.*       the image; else
//   FOLDER/../images/**/STEM.*
//
// Corners are taken as they are written, without the offset of one pixel that
// the format's first tools had; `filename`, `path` and `size` are often stale
// and not read. `difficult` objects are boxes like others. No annotation:
// background.
//
// Errors: Error (exit 4) for a list that cannot be read; a stem without an
// image is a fault, and so is XML that is none.
#pragma once

#include <filesystem>
#include <memory>

#include "worker/data/labels/label_reader.h"

namespace headroom::labels {

// REQUIRES: is_voc_split(split).
std::unique_ptr<LabelReader> open_voc_labels(const std::filesystem::path& split,
                                             const ClassRules& classes,
                                             DataReport& report);

}  // namespace headroom::labels
