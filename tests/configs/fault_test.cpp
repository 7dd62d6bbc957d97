#include "configs/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

using ::testing::HasSubstr;

TEST(Fault, IsReadAsItIsWritten) {
  const auto faults =
      parse_faults("oom@rank=1,step=7,allocation=40;nan@step=4,rank=2");
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0], (Fault{Fault::Kind::kOutOfMemory, 1, 7, 40}));
  EXPECT_EQ(faults[1].kind, Fault::Kind::kNotANumber);
  EXPECT_EQ(faults[1].rank, 2);
  EXPECT_EQ(faults[1].step, 4);
  for (const Fault& fault : faults) {
    EXPECT_EQ(parse_faults(to_string(fault)), std::vector<Fault>{fault});
  }
  EXPECT_TRUE(parse_faults("").empty());
}

TEST(Fault, PhasesAndBallast) {
  const std::string text =
      "oom@rank=0,step=4,allocation=2,phase=validation;"
      "oom@rank=0,step=1,allocation=1,phase=vote;"
      "oom@rank=1,step=1,allocation=1,phase=commit;"
      "oom@rank=1,step=1,allocation=3,phase=loader;"
      "oom@rank=1,step=1,allocation=3,phase=checkpoint;"
      "ballast@rank=0,step=5,bytes=8388608;"
      "ballast@rank=1,step=5,bytes=4096,phase=validation";
  const auto faults = parse_faults(text);
  ASSERT_EQ(faults.size(), 7u);
  EXPECT_EQ(faults[0].phase, Fault::Phase::kValidation);
  EXPECT_EQ(faults[6].phase, Fault::Phase::kValidation);
  EXPECT_EQ(faults[5].kind, Fault::Kind::kBallast);
  EXPECT_EQ(faults[5].bytes, 8388608);
  std::string written;
  for (const Fault& fault : faults) {
    written += (written.empty() ? "" : ";") + to_string(fault);
  }
  EXPECT_EQ(written, text);
  EXPECT_EQ(parse_faults("oom@phase=step")[0], Fault{});
}

TEST(Fault, AKillStrikesInForwardByDefault) {
  const std::string text =
      "kill@rank=0,step=5,phase=forward;hang@rank=1,step=3,phase=between;"
      "kill@rank=0,step=8,phase=end";
  const std::vector<Fault> faults = parse_faults(text);
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(to_string(faults[0]) + ";" + to_string(faults[1]) + ";" +
                to_string(faults[2]),
            text);
  EXPECT_EQ(parse_faults("kill@rank=0,step=5")[0], faults[0]);
}

TEST(Fault, APauseHasADuration) {
  const std::string text = "pause@rank=1,step=3,seconds=2,phase=checkpoint";
  const std::vector<Fault> faults = parse_faults(text);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kPause);
  EXPECT_EQ(faults[0].seconds, 2);
  EXPECT_EQ(faults[0].phase, Fault::Phase::kCheckpoint);
  EXPECT_TRUE(faults[0].stops_the_worker());
  EXPECT_EQ(to_string(faults[0]), text);
}

TEST(Fault, AnErrorOfTheDeviceStrikesInAStep) {
  for (const char* phase : {"forward", "backward", "commit", "collective"}) {
    const std::string text =
        std::string("device_error@rank=1,step=3,phase=") + phase;
    EXPECT_EQ(to_string(parse_faults(text)[0]), text);
    EXPECT_TRUE(parse_faults(text)[0].strikes());
    EXPECT_FALSE(parse_faults(text)[0].stops_the_worker());
  }
  EXPECT_EQ(parse_faults("device_error@rank=1,step=3")[0].phase,
            Fault::Phase::kForward);
  for (const char* wrong :
       {"device_error@phase=vote", "device_error@phase=checkpoint",
        "device_error@phase=between", "kill@phase=collective",
        "oom@phase=collective", "nan@phase=commit"}) {
    EXPECT_THROW(parse_faults(wrong), Error) << wrong;
  }
}

TEST(Fault, ARankComputesWrongOrSlowly) {
  const Fault wrong = parse_faults("corrupt@rank=1,step=5")[0];
  EXPECT_EQ(wrong.kind, Fault::Kind::kCorrupt);
  EXPECT_EQ(wrong.phase, Fault::Phase::kCommit);
  EXPECT_EQ(parse_faults(to_string(wrong))[0], wrong);
  const Fault slow = parse_faults("slow@rank=1,step=5,percent=30")[0];
  EXPECT_EQ(slow.percent, 30);
  EXPECT_EQ(parse_faults(to_string(slow))[0], slow);
  for (const char* text :
       {"corrupt@step=5,phase=vote", "slow@step=5,percent=30,phase=commit",
        "slow@rank=1,step=5", "corrupt@step=5,percent=30"}) {
    EXPECT_THAT(testing::refusal_of([&] { parse_faults(text); }),
                HasSubstr(text));
  }
}

TEST(Fault, TheCheckOfFloat16Fails) {
  const std::string text = "nan@rank=1,step=0,phase=check";
  EXPECT_EQ(to_string(parse_faults(text)[0]), text);
  EXPECT_EQ(parse_faults(text)[0].phase, Fault::Phase::kCheck);
}

TEST(Fault, AnAllocationFailsInThePassThatItNames) {
  for (const char* phase : {"forward", "backward"}) {
    const std::string text =
        std::string("oom@rank=1,step=3,allocation=2,phase=") + phase;
    EXPECT_EQ(to_string(parse_faults(text)[0]), text);
  }
  EXPECT_THROW(parse_faults("ballast@bytes=1,phase=backward"), Error);
}

TEST(Fault, TheExampleOfEachKindIsOfThatKind) {
  for (const FaultDescription& one : fault_descriptions()) {
    const std::vector<Fault> faults = parse_faults(one.example);
    ASSERT_EQ(faults.size(), 1u) << one.example;
    EXPECT_EQ(faults[0].kind, one.value) << one.example;
    EXPECT_TRUE(to_string(faults[0]).starts_with(one.example)) << one.example;
  }
}

TEST(Fault, FaultsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"fire@step=1", "there is no fault 'fire'"},
      {"kill@rank=0,phase=loader", "kill has no phase"},
      {"oom@phase=between", "oom has no phase 'between'"},
      {"disk_full@rank=0", "not in this version"},
      {"oom@step=x", "'step=x' is not NAME=NUMBER"},
      {"oom@step=1,step=2", "given twice"},
      {"nan@step=1,allocation=2", "does not belong to nan"},
      {"oom@phase=lunch", "there is no phase 'lunch'"},
      {"nan@phase=vote", "nan has no phase 'vote'"},
      {"kill@phase=check", "kill has no phase 'check'"},
      {"ballast@step=1", "bytes are missing"},
      {"pause@step=1", "seconds are missing"},
      {"hang@seconds=1", "does not belong to hang"},
      {"oom@bytes=1", "does not belong to oom"},
      {"oom@allocation=0", "allocation=0"}};
  for (const auto& [fault, why] : cases) {
    EXPECT_THAT(testing::refusal_of([&] { parse_faults(fault); }),
                HasSubstr(why));
  }
}

}  // namespace
}  // namespace headroom::configs
