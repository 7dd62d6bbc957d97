// A file of detections held against a file of objects, by both definitions of
// average precision: `headroom val --detections FILE --ground-truth FILE`.
//
// Errors: Error (exit 4) for what the files say: a detection of an image or a
// category that the ground truth has not.
// Threads: pure functions, but for reading the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/metrics/average_precision.h"
#include "worker/metrics/coco_evaluation.h"

namespace headroom::validation {

struct DetectionScores {
  int64_t images = 0, objects = 0, crowds = 0, detections = 0;
  std::vector<std::string> class_names;  // by rising category id
  metrics::AveragePrecision yolov5;      // crowds absent
  metrics::CocoEvaluation coco;          // at most 100 per image and class
  metrics::CocoEvaluation coco_300;
};

DetectionScores score_detections(const std::filesystem::path& detections,
                                 const std::filesystem::path& ground_truth);

// Tables for people; one JSON document for programs.
std::string scores_text(const DetectionScores& scores);
std::string scores_json(const DetectionScores& scores);

}  // namespace headroom::validation
