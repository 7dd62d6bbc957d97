#include "worker/chart/chart_text.h"

#include <gtest/gtest.h>

#include <opencv2/imgproc.hpp>

namespace headroom::chart {
namespace {

const std::string kCat = "\xE7\x8C\xAB";       // U+732B
const std::string kDog = "\xE7\x8A\xAC";       // U+72AC
const std::string kAccent = "caf\xC3\xA9";     // "café"
const std::string kFace = "\xF0\x9F\x98\x80";  // U+1F600

cv::Mat drawn(const std::string& text) {
  cv::Mat picture(40, 200, CV_8UC3, kPaper);
  draw_text(picture, text, {5, 30}, 0.8);
  return picture;
}

int inked(const cv::Mat& picture) {
  cv::Mat gray;
  cv::cvtColor(picture, gray, cv::COLOR_RGB2GRAY);
  return static_cast<int>(gray.total()) - cv::countNonZero(gray == 255);
}

TEST(ChartText, ALetterWithoutAFontIsShownAsItsCodePoint) {
  const auto none = [](char32_t) { return false; };
  EXPECT_EQ(with_numbers("a" + kCat + kFace, none), U"a\\u732B\\U0001F600");
  EXPECT_EQ(with_numbers(kAccent, [](char32_t c) { return c == U'\u00E9'; }),
            U"caf\u00E9");
  EXPECT_EQ(with_numbers("a\xFF", none), U"a?");
}

TEST(ChartText, AsciiIsInOpencvsFontOnEveryMachine) {
  cv::Mat expected(40, 200, CV_8UC3, kPaper);
  cv::putText(expected, "cat 0.5", {5, 30}, cv::FONT_HERSHEY_SIMPLEX, 0.8, kInk,
              1, cv::LINE_AA);
  EXPECT_EQ(cv::norm(drawn("cat 0.5"), expected, cv::NORM_INF), 0);
  EXPECT_EQ(text_size("cat"),
            cv::getTextSize("cat", cv::FONT_HERSHEY_SIMPLEX, 0.45, 1, nullptr));
}

// If a font has a letter, the letter is drawn, and otherwise its code point. So
// two names never look the same.
TEST(ChartText, OtherLettersAreDistinguishable) {
  EXPECT_GT(inked(drawn(kCat)), 40);
  EXPECT_GT(cv::norm(drawn(kCat), drawn(kDog), cv::NORM_INF), 100);
  EXPECT_GT(cv::norm(drawn(kCat), drawn("?"), cv::NORM_INF), 100);
  EXPECT_GT(text_size(kCat + kCat, 0.8).width, text_size(kCat, 0.8).width);
  EXPECT_EQ(text_size(kCat).height, text_size("a").height);
}

TEST(ChartText, EachScriptHasItsPackageOfFonts) {
  EXPECT_STREQ(font_package_of(U'\u042F'), "fonts-dejavu-core");  // Cyrillic
  EXPECT_STREQ(font_package_of(U'\u03A9'), "fonts-dejavu-core");  // Greek
  EXPECT_STREQ(font_package_of(U'\u732B'), "fonts-noto-cjk");
  EXPECT_STREQ(font_package_of(U'\u3042'), "fonts-noto-cjk");   // Hiragana
  EXPECT_STREQ(font_package_of(U'\uD55C'), "fonts-noto-cjk");   // Hangul
  EXPECT_STREQ(font_package_of(U'\u0E01'), "fonts-noto-core");  // Thai
  EXPECT_STREQ(font_package_of(U'\U0001F600'), "fonts-symbola");
}

TEST(ChartText, IsShortenedToAWidthInPixels) {
  const std::string name(60, 'w');
  const std::string shown = shortened_to(name, 200, 0.5);
  EXPECT_LE(text_size(shown, 0.5).width, 200);
  EXPECT_TRUE(shown.ends_with("w..."));
  EXPECT_EQ(shortened_to("cat", 200, 0.5), "cat");
  EXPECT_LE(text_size(shortened_to(kCat + name, 200, 0.5), 0.5).width, 200);
}

TEST(ChartText, LettersOutsideThePictureAreCutOff) {
  cv::Mat picture(12, 12, CV_8UC3, kPaper);
  draw_text(picture, kCat + kCat, {-6, 14}, 0.8);
  draw_text(picture, kAccent, {4, 2}, 0.8);
  EXPECT_GT(inked(picture), 0);
}

TEST(ChartText, IsShortenedByTheColumnsItTakes) {
  EXPECT_EQ(shortened(kAccent, 20), kAccent);
  EXPECT_EQ(shortened("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(shortened("abcdefghijk", 10), "abcdefg...");
  EXPECT_EQ(shortened(kCat + kDog + kCat, 6), kCat + kDog + kCat);
  EXPECT_EQ(shortened(kCat + kDog + kCat + kDog, 7), kCat + kDog + "...");
  EXPECT_EQ(shortened("a\xFF\n", 10), "a??");
}

}  // namespace
}  // namespace headroom::chart
