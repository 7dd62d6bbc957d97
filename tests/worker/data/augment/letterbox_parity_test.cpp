// Geometry and pixels equal those of the reference in letterbox.json and
// letterbox.safetensors exactly.
#include <gtest/gtest.h>

#include <cstring>
#include <opencv2/imgproc.hpp>
#include <sstream>

#include "tests/support/parity.h"
#include "worker/data/augment/letterbox.h"

namespace headroom::augment {
namespace {

using nlohmann::json;

class LetterboxParity : public testing::Test {
 protected:
  void SetUp() override {
    if (!parity_present()) GTEST_SKIP() << kParityMissing;
    cases_ = load_parity_json("letterbox.json");
    tensors_ = load_parity_tensors("letterbox.safetensors");
  }
  json cases_;
  weights::Safetensors tensors_;
};

cv::Mat to_mat(const at::Tensor& hwc) {
  const at::Tensor pixels = hwc.contiguous();
  cv::Mat result(static_cast<int>(pixels.size(0)),
                 static_cast<int>(pixels.size(1)), CV_8UC3);
  std::memcpy(result.data, pixels.data_ptr(), pixels.numel());
  return result;
}

// The largest difference of any byte; the sizes must be equal.
int difference(const cv::Mat& mine, const at::Tensor& reference) {
  const cv::Mat theirs = to_mat(reference);
  EXPECT_EQ(mine.rows, theirs.rows);
  EXPECT_EQ(mine.cols, theirs.cols);
  if (mine.size() != theirs.size()) return 256;
  int largest = 0;
  for (int i = 0; i < mine.rows * mine.cols * 3; ++i) {
    largest = std::max(largest, std::abs(mine.data[i] - theirs.data[i]));
  }
  return largest;
}

codecs::ImageSize size_of(const json& hw) { return {hw[0], hw[1]}; }

TEST_F(LetterboxParity, Geometry) {
  ASSERT_EQ(cases_["letterbox"].size(), 24u);
  for (const json& c : cases_["letterbox"]) {
    LetterboxOptions options;
    options.enlarge = c["scaleup"];
    options.smallest = c["auto"];
    options.stretch = c["stretch"];
    options.stride = c["stride"];
    const Letterbox box = letterbox_geometry(
        size_of(c["in_hw"]), c["size_hw"][0], c["size_hw"][1], options);
    EXPECT_EQ(json({box.height, box.width}), c["out_hw"]) << c;
    EXPECT_EQ(json({box.ratio_x, box.ratio_y}), c["ratio_wh"]) << c;
    EXPECT_EQ(json({box.pad_x, box.pad_y}), c["pad_wh"]) << c;
    EXPECT_EQ(json({box.resized_width, box.resized_height}), c["resized_wh"])
        << c;
    EXPECT_EQ(json({box.top, box.left}), c["top_left"]) << c;
  }
}

TEST_F(LetterboxParity, LoadingSizesAndInterpolation) {
  ASSERT_GT(cases_["loader_resize"].size(), 15u);
  for (const json& c : cases_["loader_resize"]) {
    const codecs::ImageSize in = size_of(c["in_hw"]);
    const int64_t side = c["imgsz"];
    const codecs::ImageSize out = fit_size(in, side, side);
    EXPECT_EQ(out, size_of(c["out_hw"])) << c;
    for (const bool training : {true, false}) {
      const std::string wanted =
          c[training ? "interpolation_training" : "interpolation_validation"];
      const cv::Mat source = to_mat(
          rule_image("L0", 1, in.height, in.width)[0].permute({1, 2, 0}));
      cv::Mat resized = source;
      if (wanted != "none") {
        cv::resize(source, resized, {out.width, out.height}, 0, 0,
                   wanted == "area" ? cv::INTER_AREA : cv::INTER_LINEAR);
      }
      EXPECT_EQ(
          cv::norm(resize_loaded(source, out, training), resized, cv::NORM_INF),
          0)
          << c << training;
    }
  }
}

TEST_F(LetterboxParity, ResizedPixels) {
  int compared = 0;
  for (const auto& [name, reference] : tensors_.tensors) {
    std::istringstream parts(name);
    std::string image, method, size;
    std::getline(parts, image, '.');
    std::getline(parts, method, '.');
    std::getline(parts, size, '.');
    if (method != "linear" && method != "area") continue;
    const cv::Mat source = to_mat(tensors_.at(image + ".src"));
    const codecs::ImageSize target{static_cast<int32_t>(reference.size(0)),
                                   static_cast<int32_t>(reference.size(1))};
    cv::Mat mine;
    if (method == "linear") {
      mine = resize_loaded(source, target, true);
    } else if (target.height <= source.rows && target.width <= source.cols) {
      mine = resize_loaded(source, target, false);
    } else {
      // The target is larger in one direction only. Loading never needs this,
      // since it keeps the aspect ratio, but OpenCV must still give the
      // reference's pixels.
      cv::resize(source, mine, {target.width, target.height}, 0, 0,
                 cv::INTER_AREA);
    }
    EXPECT_EQ(difference(mine, reference), 0) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 42);
}

TEST_F(LetterboxParity, SourcesAreRuleImages) {
  const struct {
    const char* tag;
    const char* name;
    int64_t height, width;
  } kImages[] = {{"L0", "img64x48.src", 48, 64},
                 {"L1", "img41x67.src", 67, 41},
                 {"L2", "img100x30.src", 30, 100}};
  for (const auto& image : kImages) {
    const at::Tensor rule =
        rule_image(image.tag, 1, image.height, image.width)[0].permute(
            {1, 2, 0});
    EXPECT_TRUE(rule.equal(tensors_.at(image.name))) << image.name;
  }
}

TEST_F(LetterboxParity, LetterboxedPixels) {
  ASSERT_EQ(cases_["letterbox_pixels"].size(), 6u);
  for (const json& c : cases_["letterbox_pixels"]) {
    const cv::Mat source =
        to_mat(tensors_.at(c["image"].get<std::string>() + ".src"));
    LetterboxOptions options;
    options.enlarge = c["scaleup"];
    options.smallest = c["auto"];
    options.stride = c["stride"];
    const Letterbox geometry = letterbox_geometry(
        {source.rows, source.cols}, c["size"], c["size"], options);
    EXPECT_EQ(geometry.ratio_x, c["ratio"].get<double>());
    EXPECT_EQ(json({geometry.pad_x, geometry.pad_y}), c["pad_wh"]);
    EXPECT_EQ(difference(letterbox(source, geometry),
                         tensors_.at(c["tensor"].get<std::string>())),
              0)
        << c;
  }
}

}  // namespace
}  // namespace headroom::augment
