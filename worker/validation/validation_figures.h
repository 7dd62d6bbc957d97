// From what was found in each image to the figures of a validation, the same
// however the boxes were found: in batches (validate.h) or tile by tile
// (tiled_validation.h).
#pragma once

#include <vector>

#include "worker/validation/validate.h"
#include "worker/validation/validation_findings.h"

namespace headroom::validation {

// Counts an image into its batch. `image.detections` are in descending
// confidence. REQUIRES: classes of labels below options.class_names.size().
void add_image(ImageFindings image, const ValidationOptions& options,
               BatchFindings& findings);

// Of all batches in their order; but for `seconds`.
ValidationResult summarise(const std::vector<BatchFindings>& batches,
                           const ValidationOptions& options);

// mAP50-95 of each class; as in YOLOv5, the mean over those that have labels
// for those that have none.
std::vector<double> maps_by_class(const ValidationResult& result,
                                  int64_t num_classes);

}  // namespace headroom::validation
