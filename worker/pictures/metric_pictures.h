// The results of a validation as pictures: curves of precision, recall and F1
// over confidence, precision over recall, and the confusion matrix.
//
// With more than 20 classes, the curves of classes are gray and only the mean
// curve has a name.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/metrics/average_precision.h"
#include "worker/metrics/confusion_matrix.h"

namespace headroom::pictures {

struct MetricFigures {
  std::vector<std::string> class_names;  // all classes of the data set
  metrics::AveragePrecision precision;
  std::vector<metrics::ConfusionCount> confusions;
};

struct NamedPicture {
  std::string file;  // "PR_curve.png"
  cv::Mat pixels;    // RGB
};

// Draws P_curve, R_curve, F1_curve and PR_curve; returns an empty list if no
// class has labels.
// `subject` is part of the titles, for example "epoch 12".
std::vector<NamedPicture> draw_curves(const MetricFigures& figures,
                                      const std::string& subject);

inline constexpr size_t kMostMatrixClasses = 1000;

// Draws the confusion matrix. A column is a true class and adds up to 1.
// REQUIRES: at most kMostMatrixClasses classes.
cv::Mat draw_confusion_matrix(const MetricFigures& figures,
                              const std::string& subject);

// Draws results.png: the columns of results.csv over the epochs, in RGB;
// nullopt if the file has no row yet. Cells that are empty (epochs without
// validation) or not a number are gaps.
std::optional<cv::Mat> draw_results(const std::filesystem::path& results_csv);

}  // namespace headroom::pictures
