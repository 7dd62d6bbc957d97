#include "worker/data/warp_map.h"

#include <algorithm>
#include <climits>
#include <opencv2/core.hpp>
#include <opencv2/core/saturate.hpp>
#include <opencv2/imgproc.hpp>

namespace headroom {
namespace {

constexpr int kPlaceBits = cv::INTER_BITS;  // 32nds
constexpr int kPlaces = 1 << kPlaceBits;
constexpr int kAffineBits = 10;
constexpr int kAffineScale = 1 << kAffineBits;
// warpPerspective counts columns from the start of a block of its own.
constexpr int kPerspectiveBlock = 64;

// As warpAffine inverts; a matrix without an inverse gives zeros.
cv::Matx33d inverse_affine(const cv::Matx33d& matrix) {
  double determinant =
      matrix(0, 0) * matrix(1, 1) - matrix(0, 1) * matrix(1, 0);
  determinant = determinant != 0 ? 1. / determinant : 0;
  cv::Matx33d inverse = cv::Matx33d::eye();
  inverse(0, 0) = matrix(1, 1) * determinant;
  inverse(0, 1) = matrix(0, 1) * -determinant;
  inverse(1, 0) = matrix(1, 0) * -determinant;
  inverse(1, 1) = matrix(0, 0) * determinant;
  inverse(0, 2) = -inverse(0, 0) * matrix(0, 2) - inverse(0, 1) * matrix(1, 2);
  inverse(1, 2) = -inverse(1, 0) * matrix(0, 2) - inverse(1, 1) * matrix(1, 2);
  return inverse;
}

cv::Matx33d inverse_perspective(const cv::Matx33d& matrix) {
  cv::Matx33d inverse;
  cv::invert(matrix, inverse);
  return inverse;
}

// Without the undefined overflow: places that far out are gray anyway.
int wrapping_sum(int a, int b) {
  return static_cast<int>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

int to_places(double value) {
  return cv::saturate_cast<int>(
      std::max<double>(INT_MIN, std::min<double>(INT_MAX, value)));
}

}  // namespace

WarpMap::WarpMap(const cv::Matx33d& matrix, int width)
    : width_(width),
      is_affine_(matrix(2, 0) == 0 && matrix(2, 1) == 0),
      inverse_(is_affine_ ? inverse_affine(matrix)
                          : inverse_perspective(matrix)) {
  if (!is_affine_) return;
  along_x_.resize(static_cast<size_t>(width));
  along_y_.resize(static_cast<size_t>(width));
  for (int x = 0; x < width; ++x) {
    along_x_[x] = cv::saturate_cast<int>(inverse_(0, 0) * x * kAffineScale);
    along_y_[x] = cv::saturate_cast<int>(inverse_(1, 0) * x * kAffineScale);
  }
}

void WarpMap::place_affine(double y, int* xs, int* ys) const {
  constexpr int kRounding = kAffineScale / kPlaces / 2;
  const int first_x =
      wrapping_sum(cv::saturate_cast<int>(
                       (inverse_(0, 1) * y + inverse_(0, 2)) * kAffineScale),
                   kRounding);
  const int first_y =
      wrapping_sum(cv::saturate_cast<int>(
                       (inverse_(1, 1) * y + inverse_(1, 2)) * kAffineScale),
                   kRounding);
  for (int x = 0; x < width_; ++x) {
    xs[x] = wrapping_sum(first_x, along_x_[x]) >> (kAffineBits - kPlaceBits);
    ys[x] = wrapping_sum(first_y, along_y_[x]) >> (kAffineBits - kPlaceBits);
  }
}

void WarpMap::place_perspective(double y, int* xs, int* ys) const {
  const auto at = [&](int row, int x) {
    return inverse_(row, 0) * x + inverse_(row, 1) * y + inverse_(row, 2);
  };
  const int block = std::min(kPerspectiveBlock, width_);
  for (int start = 0; start < width_; start += block) {
    const double x0 = at(0, start);
    const double y0 = at(1, start);
    const double w0 = at(2, start);
    for (int i = 0; i < std::min(block, width_ - start); ++i) {
      const double w = w0 + inverse_(2, 0) * i;
      const double scale = w != 0 ? kPlaces / w : 0;
      xs[start + i] = to_places((x0 + inverse_(0, 0) * i) * scale);
      ys[start + i] = to_places((y0 + inverse_(1, 0) * i) * scale);
    }
  }
}

void WarpMap::place_row(int64_t y, int* xs, int* ys) const {
  if (is_affine_) {
    place_affine(static_cast<double>(y), xs, ys);
  } else {
    place_perspective(static_cast<double>(y), xs, ys);
  }
}

PixelRows WarpMap::touched_rows(PixelRows rows, int origin_x, int origin_y,
                                ImageSize source) const {
  std::vector<int> xs(static_cast<size_t>(width_));
  std::vector<int> ys(static_cast<size_t>(width_));
  int first = source.height;
  int last = -1;
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    place_row(y, xs.data(), ys.data());
    for (int x = 0; x < width_; ++x) {
      // Four pixels are blended, this one and those right of and below it.
      const int left = (xs[x] >> kPlaceBits) - origin_x;
      const int above = (ys[x] >> kPlaceBits) - origin_y;
      if (left < -1 || left >= source.width || above < -1 ||
          above >= source.height) {
        continue;
      }
      first = std::min(first, above);
      last = std::max(last, above + 1);
    }
  }
  if (last < 0) return {0, 0};
  return clamp_rows({first, int64_t{last} + 1}, source.height);
}

}  // namespace headroom
