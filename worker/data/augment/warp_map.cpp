#include "worker/data/augment/warp_map.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <opencv2/core.hpp>

namespace headroom::augment {
namespace {

// Inverts as OpenCV's warpAffine does; a matrix without an inverse gives zeros.
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

kernels::WarpInverse inverse_of(const cv::Matx33d& matrix) {
  kernels::WarpInverse result;
  result.is_affine = matrix(2, 0) == 0 && matrix(2, 1) == 0 ? 1 : 0;
  const cv::Matx33d inverse = result.is_affine != 0
                                  ? inverse_affine(matrix)
                                  : inverse_perspective(matrix);
  std::copy_n(inverse.val, 9, result.at);
  return result;
}

}  // namespace

WarpMap::WarpMap(const cv::Matx33d& matrix, int width)
    : width_(width), inverse_(inverse_of(matrix)) {
  if (inverse_.is_affine == 0) return;
  along_x_.resize(static_cast<size_t>(width));
  along_y_.resize(static_cast<size_t>(width));
  for (int x = 0; x < width; ++x) {
    along_x_[x] = kernels::affine_along(inverse_, 0, x);
    along_y_[x] = kernels::affine_along(inverse_, 1, x);
  }
}

void WarpMap::place_affine(double y, int* xs, int* ys) const {
  const int first_x = kernels::affine_first(inverse_, 0, y);
  const int first_y = kernels::affine_first(inverse_, 1, y);
  for (int x = 0; x < width_; ++x) {
    xs[x] = kernels::affine_place(first_x, along_x_[x]);
    ys[x] = kernels::affine_place(first_y, along_y_[x]);
  }
}

void WarpMap::place_perspective(double y, int* xs, int* ys) const {
  const int block = kernels::block_columns(width_);
  for (int first = 0; first < width_; first += block) {
    const kernels::BlockStart start =
        kernels::perspective_block(inverse_, first, y);
    for (int i = 0; i < std::min(block, width_ - first); ++i) {
      const kernels::FetchPlace place =
          kernels::perspective_place(inverse_, start, i);
      xs[first + i] = place.x;
      ys[first + i] = place.y;
    }
  }
}

void WarpMap::place_row(int64_t y, int* xs, int* ys) const {
  if (inverse_.is_affine != 0) {
    place_affine(static_cast<double>(y), xs, ys);
  } else {
    place_perspective(static_cast<double>(y), xs, ys);
  }
}

codecs::PixelRows WarpMap::touched_rows(codecs::PixelRows rows, int origin_x,
                                        int origin_y,
                                        codecs::ImageSize source) const {
  std::vector<int> xs(static_cast<size_t>(width_));
  std::vector<int> ys(static_cast<size_t>(width_));
  int first = source.height;
  int last = -1;
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    place_row(y, xs.data(), ys.data());
    for (int x = 0; x < width_; ++x) {
      // This pixel and its neighbours to the right and below are blended.
      const int left = (xs[x] >> kernels::kPlaceBits) - origin_x;
      const int above = (ys[x] >> kernels::kPlaceBits) - origin_y;
      if (left < -1 || left >= source.width || above < -1 ||
          above >= source.height) {
        continue;
      }
      first = std::min(first, above);
      last = std::max(last, above + 1);
    }
  }
  if (last < 0) return {0, 0};
  return codecs::clamp_rows({first, int64_t{last} + 1}, source.height);
}

PixelBounds WarpMap::bounds(codecs::PixelRows rows) const {
  std::vector<int> xs(static_cast<size_t>(width_));
  std::vector<int> ys(static_cast<size_t>(width_));
  // In an affine warp, rows are straight and parallel. So the first and the
  // last row have the extreme values, unless numbers overflow.
  const bool is_straight = inverse_.is_affine != 0 && !may_wrap(rows);
  const int64_t step = is_straight ? std::max<int64_t>(1, rows.size() - 1) : 1;
  int left = INT_MAX, right = INT_MIN, top = INT_MAX, bottom = INT_MIN;
  for (int64_t y = rows.begin; y < rows.end; y += step) {
    place_row(y, xs.data(), ys.data());
    const auto [least_x, most_x] = std::minmax_element(xs.begin(), xs.end());
    const auto [least_y, most_y] = std::minmax_element(ys.begin(), ys.end());
    left = std::min(left, *least_x);
    right = std::max(right, *most_x);
    top = std::min(top, *least_y);
    bottom = std::max(bottom, *most_y);
  }
  // The neighbours to the right and below are read too.
  constexpr int kBehind = 2;
  return {left >> kernels::kPlaceBits, (right >> kernels::kPlaceBits) + kBehind,
          top >> kernels::kPlaceBits,
          (bottom >> kernels::kPlaceBits) + kBehind};
}

bool WarpMap::may_wrap(codecs::PixelRows rows) const {
  constexpr double kFarAway = INT_MAX / 4.0 / kernels::kAffineScale;
  const auto columns = static_cast<double>(width_);
  const auto last = static_cast<double>(rows.end);
  const double* at = inverse_.at;
  const auto reach = [&](int row) {
    return std::abs(at[3 * row]) * columns + std::abs(at[3 * row + 1]) * last +
           std::abs(at[3 * row + 2]);
  };
  // Written as a negation so that NaN also returns true.
  return !(reach(0) < kFarAway && reach(1) < kFarAway);
}

}  // namespace headroom::augment
