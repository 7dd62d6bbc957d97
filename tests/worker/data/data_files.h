// Files for the tests of this folder: made by the test, and removed afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <string>

#include "configs/data_config.h"
#include "tests/support/temporary_folder.h"
#include "worker/data/labels/dataset.h"

namespace headroom {

using testing::read_bytes;
using testing::TemporaryFolder;

// RGB noise added to a gradient of brightness; each seed gives another picture.
cv::Mat test_picture(int height, int width, uint64_t seed);

// Encodes any picture as a 24-bit BMP, without loss.
std::string encode_bmp(const cv::Mat& rgb);

// Writes images/train/N.bmp and labels/train/N.txt: `count` pictures of
// different sizes with 0 to 3 boxes each, of classes a, b, c.
configs::DataConfig write_data_set(const TemporaryFolder& folder, int count);

// A data file that names classes a, b, c and one folder of images for training.
configs::DataConfig data_config(const TemporaryFolder& folder,
                                const std::filesystem::path& train);

// The images in the folder `images` inside `folder` and their labels, indexed
// for training.
labels::Dataset indexed_images(const TemporaryFolder& folder,
                               const std::string& images,
                               const labels::IndexOptions& options = {});
// The images and labels of write_data_set(), indexed for training.
labels::Dataset indexed_data_set(const TemporaryFolder& folder, int count);

// ../shared/datasets/NAME, which may be missing.
std::filesystem::path shared_data_set(const std::string& name);
inline constexpr const char* kSharedDataMissing =
    "../shared/datasets is not here; it holds real images and labels";

bool same_pixels(const cv::Mat& a, const cv::Mat& b);

// Returns a view of the given rows of the picture.
cv::Mat rows_of(const cv::Mat& picture, codecs::PixelRows rows);

}  // namespace headroom
