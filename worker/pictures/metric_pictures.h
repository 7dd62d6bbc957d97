// What a validation found, as pictures: curves of precision, recall and F1 over
// confidence and of precision over recall, and the confusion matrix.
//
// With more than 20 classes their curves are gray and only the mean has a name.
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
  std::vector<std::string> class_names;  // all of the data set's
  metrics::AveragePrecision precision;
  std::vector<metrics::ConfusionCount> confusions;
};

struct NamedPicture {
  std::string file;  // "PR_curve.png"
  cv::Mat pixels;    // RGB
};

// P_curve, R_curve, F1_curve and PR_curve; none where no class has labels.
// `subject`: of the titles, as in "epoch 12".
std::vector<NamedPicture> draw_curves(const MetricFigures& figures,
                                      const std::string& subject);

inline constexpr size_t kMostMatrixClasses = 1000;

// Columns (what objects are) add up to 1.
// REQUIRES: at most kMostMatrixClasses classes.
cv::Mat draw_confusion_matrix(const MetricFigures& figures,
                              const std::string& subject);

// results.png: the columns of results.csv over the epochs, in RGB; nothing
// where the file has no row yet. Cells that are empty (epochs without a
// validation) or no numbers are gaps.
std::optional<cv::Mat> draw_results(const std::filesystem::path& results_csv);

}  // namespace headroom::pictures
