#include "parallel/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Check, AnErrorIsOneLineOfTagMessageAndRemedy) {
  const Error error("layout", "2 x 3 = 6 but world_size = 8", "use data=4");
  EXPECT_STREQ(error.what(),
               "[layout] 2 x 3 = 6 but world_size = 8: use data=4");
  EXPECT_EQ(error.tag(), "layout");
  EXPECT_EQ(error.remedy(), "use data=4");
  EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
}

TEST(Check, WithoutARemedyThereIsNoColon) {
  const Error error("data", "nothing is left", "", ExitCode::kData);
  EXPECT_STREQ(error.what(), "[data] nothing is left");
  EXPECT_EQ(error.exit_code(), ExitCode::kData);
}

TEST(Check, ALostPeerStopsTheRunResumably) {
  const CommunicationError error("rank 1 is gone");
  EXPECT_STREQ(error.what(), "[communication] rank 1 is gone");
  EXPECT_EQ(error.exit_code(), ExitCode::kResource);
}

TEST(Check, ExitCodesAreThoseOfTheReadme) {
  EXPECT_EQ(static_cast<int>(ExitCode::kDone), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kRequest), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::kNoPlan), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::kData), 4);
  EXPECT_EQ(static_cast<int>(ExitCode::kResource), 5);
  EXPECT_EQ(static_cast<int>(ExitCode::kInterrupted), 130);
}

TEST(Check, AFailedCheckNamesItsPlaceAndCondition) {
  const int rank = 3;
  EXPECT_THAT([&] { HEADROOM_CHECK(rank < 2, "rank " + std::to_string(rank)); },
              ::testing::ThrowsMessage<CheckFailure>(::testing::AllOf(
                  ::testing::HasSubstr("check_test.cpp:"),
                  ::testing::HasSubstr("check failed: rank < 2: rank 3"))));
}

TEST(Check, APassingCheckBuildsNoMessage) {
  int built = 0;
  const auto message = [&] {
    ++built;
    return std::string();
  };
  HEADROOM_CHECK(true, message());
  EXPECT_EQ(built, 0);
}

}  // namespace
}  // namespace headroom
