// results.png: the columns of results.csv over the epochs.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <optional>

namespace headroom::pictures {

// RGB; nothing where the file has no row yet. Cells that are empty (epochs
// without a validation) or no numbers are gaps.
std::optional<cv::Mat> draw_results(const std::filesystem::path& results_csv);

}  // namespace headroom::pictures
