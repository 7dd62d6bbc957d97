#include "worker/data/labels/label_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace headroom::labels {
namespace {

LabelFile parse(std::string_view text) {
  return parse_label_file(text, "x.txt", 3, false);
}

// The single fault of a text, as a line of the report.
std::string fault_of(std::string_view text, size_t boxes_left = 0) {
  const LabelFile file = parse(text);
  EXPECT_EQ(file.boxes.size(), boxes_left) << text;
  EXPECT_EQ(file.faults.size(), 1u) << text;
  return file.faults.empty() ? "" : to_string(file.faults[0]);
}

TEST(LabelFile, ReadsBoxes) {
  const LabelFile file =
      parse("0 0.5 0.25 0.1 0.2\r\n\n  2\t.5 5e-1 +0.5 1.0  \n1 0 0 0 0.0");
  ASSERT_EQ(file.boxes.size(), 2u);
  EXPECT_EQ(file.boxes[0], (BoxLabel{0, 0.5f, 0.25f, 0.1f, 0.2f}));
  EXPECT_EQ(file.boxes[1], (BoxLabel{2, 0.5f, 0.5f, 0.5f, 1.0f}));
  ASSERT_EQ(file.faults.size(), 1u);
  EXPECT_EQ(file.faults[0].where, "x.txt:4");
}

TEST(LabelFile, AnEmptyFileIsBackground) {
  EXPECT_TRUE(parse("").boxes.empty());
  EXPECT_TRUE(parse("\n \n").faults.empty());
  EXPECT_EQ(parse("\xEF\xBB\xBF"
                  "1 .5 .5 .5 .5")
                .boxes.size(),
            1u);
}

TEST(LabelFile, EachFaultCostsItsLineOnly) {
  EXPECT_EQ(fault_of("0 .5 .5\n1 .5 .5 .2 .2", 1),
            "x.txt:1: bad line (3 values instead of 5: \"0 .5 .5\"): box "
            "dropped");
  EXPECT_EQ(fault_of("car .5 .5 .2 .2"),
            "x.txt:1: bad line (not numbers: \"car .5 .5 .2 .2\"): box "
            "dropped");
  EXPECT_EQ(fault_of("0,.5,.5,.2,.2").substr(0, 18), "x.txt:1: bad line ");
  EXPECT_EQ(fault_of("0 nan .5 .2 .2").substr(0, 29),
            "x.txt:1: not a finite number ");
  EXPECT_EQ(fault_of("0 .5 inf .2 .2").substr(0, 29),
            "x.txt:1: not a finite number ");
  EXPECT_EQ(fault_of("0 .5 1e999 .2 .2").substr(0, 29),
            "x.txt:1: not a finite number ");
  EXPECT_EQ(fault_of("1.5 .5 .5 .2 .2"),
            "x.txt:1: bad class (class 1.5): box dropped");
  EXPECT_EQ(fault_of("-1 .5 .5 .2 .2"),
            "x.txt:1: bad class (class -1): box dropped");
  EXPECT_EQ(fault_of("0 .5 .5 0 .2"),
            "x.txt:1: zero size (w 0, h 0.2): box dropped");
  EXPECT_EQ(fault_of("0 .5 .5 .2 -.1", 1),
            "x.txt:1: negative size (w 0.2, h -0.1): taken as positive, box "
            "kept");
  EXPECT_EQ(fault_of("0 320 240 50 60"),
            "x.txt:1: in pixels (\"0 320 240 50 60\"): box dropped");
  // If these pixels were read as fractions, the box would be clipped to the
  // whole image.
  EXPECT_EQ(fault_of("0 10 10 40 40"),
            "x.txt:1: in pixels (\"0 10 10 40 40\"): box dropped");
  EXPECT_EQ(fault_of("0 10 10 40 10 40 40"),
            "x.txt:1: in pixels (\"0 10 10 40 10 40 40\"): box dropped");
  EXPECT_EQ(fault_of("0 1.5 .5 .2 .2"),
            "x.txt:1: outside the image (x 1.4 to 1.6, y 0.4 to 0.6): box "
            "dropped");
  EXPECT_EQ(fault_of("0 .5 .5 .2 .2\n0 .5 .5 .2 .2", 1),
            "x.txt:2: duplicate (\"0 .5 .5 .2 .2\"): box dropped");
  EXPECT_EQ(fault_of("0 .5 .5 .2 .2 0.93", 1),
            "x.txt:1: sixth value (0.93): value ignored, box kept");
}

TEST(LabelFile, BoxesThatStickOutAreClipped) {
  const LabelFile file = parse("0 .95 .5 .2 .4");
  ASSERT_EQ(file.boxes.size(), 1u);
  EXPECT_FLOAT_EQ(file.boxes[0].cx, 0.925f);
  EXPECT_FLOAT_EQ(file.boxes[0].w, 0.15f);
  EXPECT_FLOAT_EQ(file.boxes[0].h, 0.4f);
  EXPECT_EQ(to_string(file.faults.at(0)),
            "x.txt:1: sticks out of the image (x 0.85 to 1.05, y 0.3 to 0.7): "
            "box clipped to the image");
}

TEST(LabelFile, TheRoundingOfSixDecimalsIsNoFault) {
  const LabelFile file = parse("0 0.968750 0.5 0.062501 0.4");
  EXPECT_TRUE(file.faults.empty());
  EXPECT_EQ(file.boxes.at(0), (BoxLabel{0, 0.968750f, 0.5f, 0.062501f, 0.4f}));
}

TEST(LabelFile, PolygonsAndBoxesAreDistinguishedLineByLine) {
  const LabelFile file = parse(
      "1 0.1 0.2 0.5 0.2 0.3 0.6\n"
      "0 0.5 0.5 0.2 0.2\n"
      "2 0.1 0.1 0.9 0.1 0.9 0.9 0.1 0.9\n");
  EXPECT_TRUE(file.faults.empty());
  ASSERT_EQ(file.boxes.size(), 3u);
  EXPECT_EQ(file.num_polygons, 2);
  EXPECT_FLOAT_EQ(file.boxes[0].cx, 0.3f);
  EXPECT_FLOAT_EQ(file.boxes[0].cy, 0.4f);
  EXPECT_FLOAT_EQ(file.boxes[0].w, 0.4f);
  EXPECT_FLOAT_EQ(file.boxes[0].h, 0.4f);
  EXPECT_EQ(file.boxes[1], (BoxLabel{0, 0.5f, 0.5f, 0.2f, 0.2f}));
  ASSERT_EQ(file.outlines.size(), 3u);
  EXPECT_EQ(file.outlines[0], (Outline{{0.1, 0.2}, {0.5, 0.2}, {0.3, 0.6}}));
  EXPECT_TRUE(file.outlines[1].empty());
  EXPECT_EQ(file.outlines[2].size(), 4u);
  EXPECT_EQ(fault_of("1 .1 .2 .5 .2 .3 .6 .7").substr(0, 28),
            "x.txt:1: bad line (a polygon");
  EXPECT_EQ(fault_of("1 .1 .2 .1 .5 .1 .6"),
            "x.txt:1: zero size (a polygon without area): box dropped");
}

// The outline of a dropped box is dropped too; the next box must not get it.
TEST(LabelFile, OutlinesFollowTheirBoxes) {
  const LabelFile file = parse(
      "1 .1 .2 .1 .5 .1 .6\n"
      "1 -.5 .2 .5 .2 .3 .6\n"
      "1 -.5 .2 .5 .2 .3 .6\n"
      "0 .5 .5 .2 .2\n");
  ASSERT_EQ(file.boxes.size(), 2u);
  EXPECT_EQ(file.outlines,
            (std::vector<Outline>{{{0, .2}, {.5, .2}, {.3, .6}}, {}}));
  EXPECT_EQ(file.num_polygons, 1);
}

TEST(LabelFile, WrittenAgainItIsEqual) {
  const LabelFile file = parse(
      "1 0.123456 0.2 0.5 0.234567 0.3 0.6000001\n"
      "0 0.5 0.5 0.2 0.2\n"
      "2 0.1 0.1 0.9 0.1 0.9 0.9 0.1 1.2\n");
  const LabelFile again = parse(label_text(file.boxes, file.outlines));
  EXPECT_TRUE(again.faults.empty());
  EXPECT_EQ(again.boxes, file.boxes);
  EXPECT_EQ(again.outlines, file.outlines);
  // Polygons that are written without outlines are read back as boxes.
  EXPECT_EQ(parse(label_text(file.boxes)).num_polygons, 0);
}

TEST(LabelFile, AClassBeyondNamesIsNotRepaired) {
  const LabelFile file = parse("0 .5 .5 .2 .2\n7 .5 .5 .2 .2\n8 .5 .5 .2 .2");
  ASSERT_TRUE(file.unknown_class);
  EXPECT_EQ(file.unknown_class->line, 2);
  EXPECT_EQ(file.unknown_class->class_name, "7");
  const LabelFile single = parse_label_file("7 .5 .5 .2 .2", "x.txt", 1, true);
  EXPECT_FALSE(single.unknown_class);
  EXPECT_EQ(single.boxes.at(0).class_index, 0);
}

TEST(LabelFile, BinaryTextIsQuotedHarmlessly) {
  const std::string text("\x01\x02\xff\0 a b c\x1b[31m", 15);
  EXPECT_EQ(fault_of(text),
            "x.txt:1: bad line (not numbers: \"???? a b c?[31m\"): box "
            "dropped");
}

TEST(LabelFile, ManyRowsTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    text += "0 0." + std::to_string(100'000 + i) + " 0.5 0.01 0.01\n";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse(text).boxes.size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace headroom::labels
