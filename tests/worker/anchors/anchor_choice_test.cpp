#include "worker/anchors/anchor_choice.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::anchors {
namespace {

AnchorQuestion question_of(const std::vector<BoxSize>& boxes) {
  AnchorQuestion question;
  question.current = {{{10, 10}}, {{100, 100}}};
  question.boxes = question.varied = boxes;
  return question;
}

const std::vector<BoxSize> kFitting = {{10, 11}, {90, 100}, {12, 30}};
const std::vector<BoxSize> kLong = {{200, 8}, {210, 8}, {9, 300}, {2.5, 280}};

TEST(AnchorChoice, KeepsAnchorsThatFitTheBoxes) {
  const AnchorChoice choice = choose_anchors(question_of(kFitting));
  EXPECT_FALSE(choice.found);
  EXPECT_EQ(choice.anchors, question_of({}).current);
  EXPECT_EQ(choice.recall, 1);
  EXPECT_EQ(choice.reason,
            "the model's anchors match 1.0000 of 3 boxes: kept, more than "
            "0.98 is enough");
}

TEST(AnchorChoice, ReplacesAnchorsThatDoNotFitTheBoxes) {
  const AnchorChoice choice = choose_anchors(question_of(kLong));
  EXPECT_TRUE(choice.found);
  EXPECT_EQ(choice.recall_before, 0);
  EXPECT_EQ(choice.recall, 1);
  ASSERT_EQ(choice.anchors.size(), 2u);
  ASSERT_EQ(choice.anchors[0].size(), 1u);
  EXPECT_EQ(choice.reason,
            "the model's anchors match 0.0000 of 4 boxes, 1 of them with "
            "a side under 3 px; replaced by 2 found from the boxes, which "
            "match 1.0000: " +
                layers::to_text(choice.anchors));
}

TEST(AnchorChoice, KeepsAnchorsThatAreNoWorse) {
  AnchorQuestion question = question_of(kLong);
  question.varied = {{5000, 8}, {5000, 5000}};  // no anchor can match these
  const AnchorChoice choice = choose_anchors(question);
  EXPECT_FALSE(choice.found);
  EXPECT_EQ(choice.reason,
            "the model's anchors match 0.0000 of 4 boxes, 1 of them with "
            "a side under 3 px; kept, for 2 found from the boxes match "
            "0.0000");
}

TEST(AnchorChoice, TooFewSizes) {
  AnchorQuestion question = question_of({{200, 8}, {200, 8}});
  EXPECT_EQ(choose_anchors(question).reason,
            "the model's anchors match 0.0000 of 2 boxes; kept, for the "
            "boxes have fewer than 2 different sizes of 2 px or more to find 2 "
            "anchors from");
  question.must_find = true;
  try {
    choose_anchors(question);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[anchors] the training boxes have fewer than 2 different "
                 "sizes of 2 px or more to find 2 anchors from: keep the "
                 "model's: --set hyp.anchors=0");
    EXPECT_EQ(error.exit_code(), ExitCode::kData);
  }
}

TEST(AnchorChoice, SearchesOnRequest) {
  AnchorQuestion question = question_of(kFitting);
  question.must_find = true;
  EXPECT_TRUE(choose_anchors(question).found);
}

}  // namespace
}  // namespace headroom::anchors
