// Scores and writes detections. `headroom val --detections FILE --ground-truth
// FILE` compares a file of detections with a file of objects, by YOLOv5's and
// by COCO's definition of average precision. `headroom val` writes its
// detections as one text file per image and as COCO's result file.
//
// Errors: Error (exit 4) if a detection names an image or a category that the
// ground truth does not have; Error (exit 5) if files cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "configs/run_config.h"
#include "worker/data/labels/dataset.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/coco_evaluation.h"
#include "worker/validation/validate.h"

namespace headroom::validation {

struct DetectionScores {
  int64_t images = 0, objects = 0, crowds = 0, detections = 0;
  std::vector<std::string> class_names;  // sorted by category id
  metrics::AveragePrecision yolov5;      // YOLOv5's definition, no crowds
  metrics::CocoEvaluation coco;  // at most 100 boxes per image and class
  metrics::CocoEvaluation coco_300;
};

DetectionScores score_detections(const std::filesystem::path& detections,
                                 const std::filesystem::path& ground_truth);

// Tables for users, and one JSON document for programs.
std::string scores_text(const DetectionScores& scores);
std::string scores_json(const DetectionScores& scores);
nlohmann::ordered_json scores_object(const DetectionScores& scores);

// Writes labels/NAME.txt (--save-txt) and predictions.json (--save-json) into
// `folder`. If the split is one COCO JSON file, the file's ids are used.
void write_found(const configs::RunConfig& config,
                 const std::filesystem::path& folder,
                 const labels::Dataset& dataset,
                 const configs::DataConfig& data, labels::Split split,
                 std::vector<ImageFindings> found);

// The metrics of score_detections() for the detections of a validation. Labels
// have no outlines and no crowds: the area of an object is the area of its box.
// REQUIRES: the result keeps all detections and the curves.
DetectionScores scores_of(const ValidationResult& result,
                          const std::vector<std::string>& class_names);

}  // namespace headroom::validation
