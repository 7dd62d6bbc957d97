#include "parallel/predict/label_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace headroom::predict {
namespace {

using Kind = BoxBound::Kind;

// Many images have no boxes, some have a few, and a few are crowded.
std::vector<int64_t> uneven_images() {
  std::vector<int64_t> boxes(200, 0);
  for (int64_t i = 0; i < 150; ++i) boxes.push_back(1 + i % 12);
  boxes.insert(boxes.end(), {40, 41, 300});
  return boxes;
}

LabelBound labels_of(const std::vector<int64_t>& boxes, double mosaic,
                     double mixup) {
  LabelBound labels;
  labels.statistics = label_statistics(boxes);
  labels.mosaic = mosaic;
  labels.mixup = mixup;
  return labels;
}

TEST(LabelStatistics, CountsImages) {
  const LabelStatistics statistics = label_statistics({3, 0, 7, 3, 3});
  EXPECT_EQ(to_text(statistics), "0x1 3x3 7x1");
  EXPECT_EQ(statistics.num_images(), 5);
  EXPECT_EQ(statistics.most_boxes(), 7);
  EXPECT_DOUBLE_EQ(statistics.mean(), 16 / 5.);
  EXPECT_NEAR(statistics.variance(), (9 * 3 + 49) / 5. - 3.2 * 3.2, 1e-12);
  EXPECT_EQ(statistics.boxes_of_fullest(2), 10);
  EXPECT_EQ(statistics.boxes_of_fullest(9), 16);
  EXPECT_FALSE(LabelStatistics().is_known());
}

TEST(LabelStatistics, ManyBoxesAreRoundedUpButNotTheMost) {
  EXPECT_EQ(to_text(label_statistics({63, 64, 65, 129, 2047})),
            "63x1 64x1 66x1 132x1 2047x1");
}

TEST(LabelStatistics, IsReadAsWritten) {
  const LabelStatistics statistics = label_statistics(uneven_images());
  EXPECT_EQ(parse_label_statistics(to_text(statistics)), statistics);
  EXPECT_EQ(parse_label_statistics(""), LabelStatistics());
  for (const std::string wrong :
       {"3", "x", "3x0", "3x-1", "3x1 3x2", "5x1 3x2", "3 x1", "3x1,4x1"}) {
    EXPECT_EQ(parse_label_statistics(wrong), std::nullopt) << wrong;
  }
}

TEST(LabelStatistics, TheNumberOfOutlinesIsTheLastField) {
  LabelStatistics statistics = label_statistics({3, 0, 7});
  statistics.outlines = 4;
  EXPECT_EQ(to_text(statistics), "0x1 3x1 7x1 outlines=4");
  EXPECT_EQ(parse_label_statistics(to_text(statistics)), statistics);
  for (const std::string wrong :
       {"outlines=4", "3x1 outlines=", "3x1 outlines=-1", "outlines=4 3x1",
        "3x1 outlines=x"}) {
    EXPECT_EQ(parse_label_statistics(wrong), std::nullopt) << wrong;
  }
}

// Half of the 16 boxes may be pasted again, and each of the 4 mosaics may round
// this up by half a box: 8 + 2.
TEST(LabelBound, CopyPasteAddsAShareOfTheBoxes) {
  LabelBound labels = labels_of({1, 1, 1, 1}, 1, 0);
  const int64_t plain = most_boxes(labels, 4).boxes;
  EXPECT_EQ(plain, 16);
  labels.copy_paste = 0.5;
  EXPECT_EQ(most_boxes(labels, 4).boxes, 16 + 8 + 2);
  labels.mixup = 0.5;  // mixup needs twice as many mosaics
  EXPECT_EQ(most_boxes(labels, 4).boxes, 32 + 16 + 4);
  labels.mosaic = 0;
  EXPECT_EQ(most_boxes(labels, 4).boxes, 4) << "it is part of mosaics";
}

TEST(LabelBound, WithoutLabelsSomeAreAssumed) {
  LabelBound labels;
  labels.assumed_boxes_per_image = 8;
  labels.mosaic = 1;
  EXPECT_EQ(most_boxes(labels, 4), (BoxBound{32, Kind::kAssumed}));
  EXPECT_EQ(bound_text(labels, 4), "8 boxes per image assumed");
}

TEST(LabelBound, WithoutMosaicsItIsTheFullestImages) {
  const LabelBound labels = labels_of(uneven_images(), 0, 0.5);
  EXPECT_EQ(most_boxes(labels, 1), (BoxBound{300, Kind::kCertain}));
  EXPECT_EQ(most_boxes(labels, 4),
            (BoxBound{300 + 41 + 40 + 12, Kind::kCertain}));
  EXPECT_EQ(bound_text(labels, 1),
            "at most 300 boxes in 1 image, from the labels of 353 images");
}

TEST(LabelBound, WhereImagesRepeatEachMayBeTheFullest) {
  LabelBound labels = labels_of(uneven_images(), 0, 0);
  labels.repeats = true;
  EXPECT_EQ(most_boxes(labels, 4), (BoxBound{4 * 300, Kind::kCertain}));
  labels.mosaic = 0.5;
  EXPECT_EQ(most_boxes(labels, 4), (BoxBound{4 * 4 * 300, Kind::kCertain}));
  labels.mixup = 0.5;
  labels.copy_paste = 0.5;
  EXPECT_EQ(most_boxes(labels, 4), (BoxBound{9600 + 4800 + 4, Kind::kCertain}));
  // This also holds for mosaics of many samples, where the likely bound would
  // be smaller if images did not repeat.
  labels.mixup = labels.copy_paste = 0;
  EXPECT_EQ(most_boxes(labels, 500), (BoxBound{500 * 4 * 300, Kind::kCertain}));
}

// A mosaic draws three more images. With few samples, three times the boxes of
// the fullest image are fewer than the likely bound.
TEST(LabelBound, FewImagesAreBoundedForCertain) {
  EXPECT_EQ(most_boxes(labels_of({10, 0}, 1, 0), 1),
            (BoxBound{40, Kind::kCertain}));
  EXPECT_EQ(most_boxes(labels_of({10, 0}, 1, 0.1), 1),
            (BoxBound{80, Kind::kCertain}));
  EXPECT_EQ(most_boxes(labels_of({5, 5, 5}, 1, 0), 2).boxes, 40);
}

// Calculated by hand: half of the images have 0 boxes and half have 8, so the
// mean is 4 and the variance 16; 64 samples draw 192 more images. L = ln 1e9, t
// = 4 L / 3 + sqrt((4 L / 3)^2 + 2 L 192 16).
TEST(LabelBound, ManyImagesAreBoundedByBernstein) {
  std::vector<int64_t> boxes(500, 0);
  boxes.insert(boxes.end(), 500, 8);
  const double log = std::log(1e9);
  const double t =
      4 * log / 3 + std::sqrt(16 * log * log / 9 + 2 * log * 192 * 16);
  const BoxBound bound = most_boxes(labels_of(boxes, 1, 0), 64);
  EXPECT_EQ(bound.kind, Kind::kLikely);
  EXPECT_EQ(bound.boxes, 64 * 8 + static_cast<int64_t>(std::ceil(768 + t)));
  EXPECT_LT(bound.boxes, 64 * 4 * 8);
  EXPECT_EQ(bound_text(labels_of(boxes, 1, 0), 64),
            "at most " + std::to_string(bound.boxes) +
                " boxes in 64 images, from the labels of 1000 images (more in "
                "one of 1e9 micro-batches)");
}

// An augmentation that is applied to few samples must not make the bound
// reserve memory as if it were applied to all samples.
TEST(LabelBound, RareMixupCostsLittle) {
  std::vector<int64_t> boxes(500, 6);
  boxes.insert(boxes.end(), 500, 8);
  const int64_t never = most_boxes(labels_of(boxes, 1, 0), 256).boxes;
  const int64_t rarely = most_boxes(labels_of(boxes, 1, 0.1), 256).boxes;
  const int64_t always = most_boxes(labels_of(boxes, 1, 1), 256).boxes;
  EXPECT_LT(never, rarely);
  EXPECT_LT(rarely, never + (always - never) / 3);
}

TEST(LabelBound, MosaicsOfNineDrawEight) {
  LabelBound labels = labels_of({3, 7, 5}, 1, 0);
  EXPECT_EQ(most_boxes(labels, 1).boxes, 7 + 3 * 7);
  labels.images_of_mosaic = 9;
  EXPECT_EQ(most_boxes(labels, 1).boxes, 7 + 8 * 7);
  labels.mixup = 1;
  EXPECT_EQ(most_boxes(labels, 1).boxes, 7 + 17 * 7);
}

TEST(LabelBound, GrowsWithSamples) {
  const LabelBound labels = labels_of(uneven_images(), 1, 0.1);
  int64_t before = 0;
  for (int64_t samples = 1; samples <= 256; ++samples) {
    const int64_t boxes = most_boxes(labels, samples).boxes;
    EXPECT_GE(boxes, before) << samples;
    before = boxes;
  }
}

// Simulated augmentation never exceeds the bound, and comes close to it if
// images are alike.
TEST(LabelBound, HoldsForDrawnMicroBatches) {
  std::mt19937_64 random(5);
  for (const bool alike : {false, true}) {
    const std::vector<int64_t> images =
        alike ? std::vector<int64_t>(300, 9) : uneven_images();
    for (const auto& [mosaic, mixup] : std::vector<std::pair<double, double>>{
             {1, 0}, {1, 0.3}, {0.5, 0.3}, {0.2, 1}}) {
      for (const int64_t samples : {1, 4, 16, 64}) {
        const int64_t bound =
            most_boxes(labels_of(images, mosaic, mixup), samples).boxes;
        int64_t most = 0;
        for (int trial = 0; trial < 500; ++trial) {
          std::vector<int64_t> own;
          std::ranges::sample(images, std::back_inserter(own), samples, random);
          int64_t boxes = 0;
          for (const int64_t count : own) boxes += count;
          std::uniform_int_distribution<size_t> any(0, images.size() - 1);
          std::uniform_real_distribution<double> part;
          for (int64_t i = 0; i < samples; ++i) {
            if (part(random) >= mosaic) continue;
            const int drawn = part(random) < mixup ? 7 : 3;
            for (int j = 0; j < drawn; ++j) boxes += images[any(random)];
          }
          most = std::max(most, boxes);
        }
        EXPECT_LE(most, bound) << mosaic << ", " << mixup << ", " << samples;
        if (alike && mosaic == 1 && mixup == 0) {
          EXPECT_EQ(most, bound);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::predict
