#include "deploy/local/shape_picture.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <opencv2/imgproc.hpp>

namespace headroom {
namespace {

constexpr double kSmallestSide = 0.25;  // a fraction of the image's side
constexpr double kLargestSide = 0.55;
constexpr double kLargestOverlap = 0.05;  // a fraction of the smaller box
constexpr double kLeastContrast = 70;     // the distance of colours, 0..441

// Enlarges a small random grid: blotches of `cell` pixels.
cv::Mat blotches(int size, int cell, Draws& draws) {
  const int cells = size / cell + 2;
  cv::Mat grid(cells, cells, CV_32FC1);
  for (int i = 0; i < cells * cells; ++i) {
    grid.at<float>(i / cells, i % cells) =
        static_cast<float>(draws.uniform(0, 1));
  }
  cv::Mat result;
  cv::resize(grid, result, {size, size}, 0, 0, cv::INTER_CUBIC);
  return result;
}

// Values 0..1 over the image: a slope or waves in a random direction.
cv::Mat slope_or_stripes(int size, bool stripes, Draws& draws) {
  const double angle = draws.uniform(0, std::numbers::pi);
  const double waves = draws.uniform(3, 9);
  const double dx = std::cos(angle) / size;
  const double dy = std::sin(angle) / size;
  cv::Mat result(size, size, CV_32FC1);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const double along = x * dx + y * dy;
      const double value =
          stripes ? 0.5 + 0.5 * std::sin(2 * std::numbers::pi * waves * along)
                  : std::abs(along);
      result.at<float>(y, x) = static_cast<float>(value);
    }
  }
  return result;
}

cv::Mat draw_background(int size, Draws& draws) {
  const int kind = draws.below(3);
  const cv::Mat blend = kind == 0 ? blotches(size, std::max(4, size / 6), draws)
                                  : slope_or_stripes(size, kind == 1, draws);
  const cv::Scalar first = draws.colour();
  // The second colour is close to the first, because strong stripes would look
  // like objects.
  cv::Scalar second;
  for (int c = 0; c < 3; ++c) {
    second[c] = std::clamp(first[c] + draws.uniform(-90, 90), 0.0, 255.0);
  }
  cv::Mat result(size, size, CV_32FC3);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const float t = blend.at<float>(y, x);
      for (int c = 0; c < 3; ++c) {
        result.at<cv::Vec3f>(y, x)[c] =
            static_cast<float>(first[c] * (1 - t) + second[c] * t);
      }
    }
  }
  return result;
}

// Corners around the origin, inside a circle of radius 1.
std::vector<cv::Point2d> outline(int class_index, Draws& draws) {
  constexpr int kCircleCorners = 48;
  std::vector<double> angles;
  if (class_index == 0) {
    for (int i = 0; i < kCircleCorners; ++i) {
      angles.push_back(2 * std::numbers::pi * i / kCircleCorners);
    }
  } else if (class_index == 1) {
    const double half = draws.uniform(0.6, std::numbers::pi / 2 - 0.6);
    for (const double turn : {0.0, std::numbers::pi}) {
      angles.push_back(turn - half);
      angles.push_back(turn + half);
    }
  } else {
    for (int i = 0; i < 3; ++i) {
      angles.push_back(2 * std::numbers::pi * i / 3 +
                       draws.uniform(-0.25, 0.25));
    }
  }
  const double turn = draws.uniform(0, 2 * std::numbers::pi);
  std::vector<cv::Point2d> corners;
  for (const double angle : angles) {
    corners.emplace_back(std::cos(angle + turn), std::sin(angle + turn));
  }
  return corners;
}

cv::Rect2d hull(const std::vector<cv::Point2d>& corners) {
  cv::Point2d low = corners[0];
  cv::Point2d high = corners[0];
  for (const cv::Point2d& corner : corners) {
    low = {std::min(low.x, corner.x), std::min(low.y, corner.y)};
    high = {std::max(high.x, corner.x), std::max(high.y, corner.y)};
  }
  return {low, high};
}

bool is_free(const cv::Rect2d& box, const Picture& picture) {
  return std::none_of(
      picture.objects.begin(), picture.objects.end(),
      [&](const Picture::Object& other) {
        const double smaller = std::min(box.area(), other.box.area());
        return (box & other.box).area() > kLargestOverlap * smaller;
      });
}

void fill(cv::Mat& pixels, const std::vector<cv::Point2d>& corners,
          const cv::Rect2d& box, Draws& draws) {
  const cv::Rect whole(0, 0, pixels.cols, pixels.rows);
  const cv::Scalar behind = cv::mean(pixels(cv::Rect(box) & whole));
  cv::Scalar colour = draws.colour();
  while (cv::norm(colour - behind) < kLeastContrast) colour = draws.colour();
  constexpr int kFractionBits = 4;
  std::vector<cv::Point> fixed;
  for (const cv::Point2d& corner : corners) {
    fixed.emplace_back(corner * double{1 << kFractionBits});
  }
  cv::fillPoly(pixels, std::vector<std::vector<cv::Point>>{fixed}, colour,
               cv::LINE_8, kFractionBits);
}

void add_object(Picture& picture, Draws& draws) {
  constexpr int kTries = 40;
  const int size = picture.pixels.cols;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int class_index = draws.below(static_cast<int>(kClassNames.size()));
    std::vector<cv::Point2d> corners = outline(class_index, draws);
    const cv::Rect2d unit = hull(corners);
    const double side = size * draws.uniform(kSmallestSide, kLargestSide);
    const double scale = side / std::max(unit.width, unit.height);
    const double x = draws.uniform(1, size - 2 - unit.width * scale);
    const double y = draws.uniform(1, size - 2 - unit.height * scale);
    for (cv::Point2d& corner : corners) {
      corner = (corner - unit.tl()) * scale + cv::Point2d(x, y);
    }
    const cv::Rect2d box = hull(corners);
    if (!is_free(box, picture)) continue;
    fill(picture.pixels, corners, box, draws);
    picture.objects.push_back({class_index, box});
    return;
  }
}

// Adds sensor noise, so that no area is perfectly flat.
void add_noise(cv::Mat& pixels, Draws& draws) {
  const double strength = draws.uniform(2, 14);
  for (int y = 0; y < pixels.rows; ++y) {
    for (int x = 0; x < pixels.cols; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double noise = draws.uniform(-1, 1) + draws.uniform(-1, 1);
        pixels.at<cv::Vec3f>(y, x)[c] += static_cast<float>(strength * noise);
      }
    }
  }
}

}  // namespace

Picture draw_picture(int size, Draws& draws) {
  Picture picture;
  picture.pixels = draw_background(size, draws);
  const int objects = 1 + draws.below(4);
  for (int i = 0; i < objects; ++i) add_object(picture, draws);
  cv::GaussianBlur(picture.pixels, picture.pixels, {3, 3},
                   draws.uniform(0.4, 0.9));
  add_noise(picture.pixels, draws);
  picture.pixels.convertTo(picture.pixels, CV_8UC3);
  return picture;
}

}  // namespace headroom
