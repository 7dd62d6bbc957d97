// The images and boxes of a COCO JSON as a source of a split.
//
// Categories are found in `names` by their names, whatever their ids are. Boxes
// are pixels of the image as it is, upright; the sizes that the file states are
// not used. Crowds are regions, not objects: they are no boxes to train on.
//
// `segmentation`, where it is a list, is the outline of its box: parts are
// joined by a line there and back, which paste_mirrored() does not see.
//
// Errors: Error (exit 4) for a file that is none; a box of an image that the
// file has not, and an image whose name leads out of its folder, are faults.
#pragma once

#include <filesystem>
#include <memory>

#include "worker/data/labels/label_reader.h"

namespace headroom::labels {

// `images`: where file names start; "" is beside the file. Without
// `keep_outlines` outlines are counted alone.
std::unique_ptr<LabelReader> open_coco_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report, bool keep_outlines);

}  // namespace headroom::labels
