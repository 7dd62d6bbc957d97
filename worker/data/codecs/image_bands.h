// Bands: the numbers of a pixel, 8 bits each, or 16 where a data set declares a
// range (level_reader.h). Pictures have three, red, green and blue, whatever
// their files hold, unless more or fewer are wanted (a model whose `ch` is
// neither 3 nor 1): then only TIFFs of so many bands are read, and what is
// about colours is left out of their augmentation.
//
// Operators that OpenCV has for some numbers of bands only work on each band
// alone here; of three bands they are OpenCV's, to the bit.
#pragma once

#include <cstdint>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>

#include "worker/data/codecs/image.h"

namespace headroom::codecs {

inline constexpr int kMostBands = CV_CN_MAX;

// Throw ImageRefusal. `has`: "colours", or a number of bands; `wanted`: not
// kAnyBands.
[[noreturn]] void refuse_bands(const std::string& has, int wanted);
[[noreturn]] void refuse_bands(int has, int wanted);
void check_num_bands(int bands);
// Refuses a picture with more samples than the largest one in colours, as it is
// held whole.
void check_samples(int64_t width, int64_t height, int bands,
                   const ImageLimits& limits);

// A picture of that type, CV_8U or CV_16U, of an 8-bit value in all bands.
cv::Mat plain_picture(int rows, int cols, int type, uint8_t value);

// `change` gets all of it where there are three bands, else one after another.
// It keeps size and type.
void change_bands(cv::Mat& pixels, const std::function<void(cv::Mat&)>& change);

// cv::resize into a picture that is there. Bilinearly, 16 bits are computed in
// whole numbers: every processor has the same.
void resize_bands(const cv::Mat& pixels, cv::Mat& target, int interpolation);

// Rows become columns; pixels of any size.
cv::Mat transposed(const cv::Mat& pixels);

// What people can be shown, 8 bits: the first three bands, or the first one as
// gray. `pixels` itself where it is that.
cv::Mat shown_colours(const cv::Mat& pixels);

}  // namespace headroom::codecs
