// Draws pictures of shapes on textured backgrounds, with their boxes.
#pragma once

#include <array>
#include <cstdint>
#include <opencv2/core.hpp>
#include <random>
#include <vector>

namespace headroom {

inline constexpr std::array<const char*, 3> kClassNames{"circle", "rectangle",
                                                        "triangle"};

// The random choices of a picture. The class has distributions of its own,
// because the C++ standard fixes the output of mt19937_64 but not of its
// distributions.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}

  double uniform(double low, double high) {
    return low +
           (high - low) * static_cast<double>(engine_() >> 11) * 0x1.0p-53;
  }
  int below(int n) { return static_cast<int>(uniform(0, n)); }
  cv::Scalar colour() {
    const double red = uniform(0, 255);
    const double green = uniform(0, 255);
    return {red, green, uniform(0, 255)};
  }

 private:
  std::mt19937_64 engine_;
};

struct Picture {
  cv::Mat pixels;  // RGB
  struct Object {
    int class_index = 0;
    cv::Rect2d box;  // in pixels
  };
  std::vector<Object> objects;
};

// Draws 1 to 4 objects that hardly overlap.
Picture draw_picture(int size, Draws& draws);

}  // namespace headroom
