#include "worker/data/codecs/image_bands.h"

#include <algorithm>
#include <cstring>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/codec.h"

namespace headroom::codecs {

void refuse_bands(const std::string& has, int wanted) {
  const std::string number = std::to_string(wanted);
  throw ImageRefusal(has + ", but the model's ch is " + number +
                     ": use a model with ch: 3, or TIFFs of " + number +
                     " bands");
}

void refuse_bands(int has, int wanted) {
  const std::string number = std::to_string(has);
  const bool colours = wanted == kColours;
  throw ImageRefusal(counted(has, "band") + ", but the model's ch is " +
                     (colours ? "3 or 1" : std::to_string(wanted)) +
                     ": use a model with ch: " + number + ", or images of " +
                     (colours ? "colours" : cat(wanted, " bands")));
}

void check_num_bands(int bands) {
  if (bands >= 1 && bands <= kMostBands) return;
  throw ImageRefusal(cat(bands, " bands are above the limit of ", kMostBands));
}

void check_samples(int64_t width, int64_t height, int bands,
                   const ImageLimits& limits) {
  check_pixels(width, height, limits);
  if (width * height <= limits.max_pixels * kColours / bands) return;
  throw ImageRefusal(cat(width, " x ", height, " pixels of ", bands,
                         " bands are above the limit of ",
                         limits.max_pixels * kColours, " samples"));
}

cv::Mat plain_picture(int rows, int cols, int type, uint8_t value) {
  cv::Mat picture(rows, cols, type);
  const size_t samples = picture.total() * static_cast<size_t>(CV_MAT_CN(type));
  if (picture.depth() == CV_16U) {
    std::fill_n(reinterpret_cast<uint16_t*>(picture.data), samples,
                static_cast<uint16_t>(value * (kMostLevel / 255)));
  } else if (samples > 0) {
    std::memset(picture.data, value, samples);
  }
  return picture;
}

void change_bands(cv::Mat& pixels,
                  const std::function<void(cv::Mat&)>& change) {
  if (pixels.channels() == kColours) return change(pixels);
  cv::Mat band;
  for (int i = 0; i < pixels.channels(); ++i) {
    cv::extractChannel(pixels, band, i);
    change(band);
    cv::insertChannel(band, pixels, i);
  }
}

void resize_bands(const cv::Mat& pixels, cv::Mat& target, int interpolation) {
  if (pixels.depth() == CV_16U && interpolation == cv::INTER_LINEAR) {
    interpolation = cv::INTER_LINEAR_EXACT;
  }
  if (pixels.channels() == kColours) {
    return cv::resize(pixels, target, target.size(), 0, 0, interpolation);
  }
  cv::Mat band, resized;
  for (int i = 0; i < pixels.channels(); ++i) {
    cv::extractChannel(pixels, band, i);
    cv::resize(band, resized, target.size(), 0, 0, interpolation);
    cv::insertChannel(resized, target, i);
  }
}

cv::Mat transposed(const cv::Mat& pixels) {
  cv::Mat result(pixels.cols, pixels.rows, pixels.type());
  if (pixels.channels() == 1 || pixels.channels() == kColours) {
    cv::transpose(pixels, result);
    return result;
  }
  const size_t bytes = pixels.elemSize();
  for (int y = 0; y < pixels.rows; ++y) {
    for (int x = 0; x < pixels.cols; ++x) {
      std::memcpy(result.ptr(x) + static_cast<size_t>(y) * bytes,
                  pixels.ptr(y) + static_cast<size_t>(x) * bytes, bytes);
    }
  }
  return result;
}

cv::Mat shown_colours(const cv::Mat& pixels) {
  if (pixels.depth() == CV_16U) {
    cv::Mat bytes;
    pixels.convertTo(bytes, CV_8U, 1.0 / 257);
    return shown_colours(bytes);
  }
  if (pixels.channels() == kColours) return pixels;
  cv::Mat result(pixels.rows, pixels.cols,
                 CV_MAKETYPE(pixels.depth(), kColours));
  const bool is_gray = pixels.channels() < kColours;
  const int pairs[] = {0, 0, is_gray ? 0 : 1, 1, is_gray ? 0 : 2, 2};
  cv::mixChannels(&pixels, 1, &result, 1, pairs, kColours);
  return result;
}

}  // namespace headroom::codecs
