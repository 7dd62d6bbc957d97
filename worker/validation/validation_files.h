// validation_files: what `headroom val` found, for programs: per-image boxes as
// text, COCO's result file, and the figures that need whole images.
//
// Errors: Error (exit 5) for files that cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "configs/run_config.h"
#include "worker/data/labels/dataset.h"
#include "worker/validation/detection_scores.h"
#include "worker/validation/validate.h"

namespace headroom::validation {

// labels/NAME.txt (--save-txt) and predictions.json (--save-json), in `folder`.
// Where the split is one COCO JSON, ids are its own.
void write_found(const configs::RunConfig& config,
                 const std::filesystem::path& folder,
                 const labels::Dataset& dataset,
                 const configs::DataConfig& data, labels::Split split,
                 std::vector<ImageFindings> found);

// The figures of a file of detections, of the boxes that were found. Labels
// have no outlines and no crowds: an object's size is its box's.
// REQUIRES: the result keeps all that was found, and the curves.
DetectionScores scores_of(const ValidationResult& result,
                          const std::vector<std::string>& class_names);

}  // namespace headroom::validation
