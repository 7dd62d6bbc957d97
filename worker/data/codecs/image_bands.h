// Bands: the numbers that a pixel consists of. Each has 8 bits, or 16 if a data
// set declares a range of values (level_reader.h). By default a picture has
// three bands (red, green, blue), independent of its file. If a model's `ch` is
// neither 3 nor 1, only TIFFs with that number of bands are read, and
// augmentation skips the steps that change colours.
//
// Some OpenCV functions support only some numbers of bands. The functions here
// apply them to each band separately. Pictures of three bands go to OpenCV
// unchanged, so that the result is exactly OpenCV's.
#pragma once

#include <cstdint>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>

#include "worker/data/codecs/image.h"

namespace headroom::codecs {

inline constexpr int kMostBands = CV_CN_MAX;

// Both functions throw ImageRefusal. `has` describes the file: "colours", or
// its number of bands; `wanted` is not kAnyBands.
[[noreturn]] void refuse_bands(const std::string& has, int wanted);
[[noreturn]] void refuse_bands(int has, int wanted);
void check_num_bands(int bands);
// Refuses a picture with more samples than the largest allowed picture of three
// colours has, because the whole picture is held in memory.
void check_samples(int64_t width, int64_t height, int bands,
                   const ImageLimits& limits);

// A picture of `type`, which has depth CV_8U or CV_16U, filled with an 8-bit
// value (scaled to 16 bits for CV_16U).
cv::Mat plain_picture(int rows, int cols, int type, uint8_t value);

// Calls `change` with the whole picture if it has three bands, else with each
// band separately. `change` must keep size and type.
void change_bands(cv::Mat& pixels, const std::function<void(cv::Mat&)>& change);

// cv::resize into a picture that is already allocated. Bilinear resizing of 16
// bits uses integer arithmetic, so that every processor gives the same result.
void resize_bands(const cv::Mat& pixels, cv::Mat& target, int interpolation);

// Swaps rows and columns, for pixels with any number of bands.
cv::Mat transposed(const cv::Mat& pixels);

// Returns an 8-bit RGB picture for display: the first three bands, or the first
// band as gray if there are fewer. Returns `pixels` itself if it already has
// three 8-bit bands.
cv::Mat shown_colours(const cv::Mat& pixels);

}  // namespace headroom::codecs
