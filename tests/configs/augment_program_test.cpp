#include "configs/augment_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

using ::testing::ElementsAre;
using testing::refusal_of;

TEST(AugmentProgram, WordsAreSeparatedBySpaces) {
  EXPECT_THAT(words_of_program(" python3  a.py "),
              ElementsAre("python3", "a.py"));
  EXPECT_EQ(record_of_program(" python3  a.py "), "python3 a.py");
  EXPECT_EQ(record_of_program(" "), "");
}

// The file differs on another machine.
TEST(AugmentProgram, EveryWorkerHasTheRunsProgramWithTheSameFiles) {
  const testing::TemporaryFolder folder;
  const std::string command = "sh " + folder.write("a.sh", "cat").string();
  RunConfig config;
  EXPECT_EQ(take_augment_program(config, command), "");
  EXPECT_EQ(config.augment_command, command);
  EXPECT_EQ(augment_program_flag(config),
            " --augment-program '" + command + "'");
  const std::string record = config.augment_program;
  const auto refusal = [&](const std::string& of_worker) {
    return refusal_of([&] { require_augment_program(config, of_worker); });
  };
  EXPECT_EQ(refusal(command), "accepted");
  EXPECT_EQ(refusal(""),
            "[augment] --augment-program of this worker's agent is none, and "
            "the run's is '" +
                record +
                "': give headroom train and every agent the same one, with the "
                "same files");
  folder.write("a.sh", "exec cat");
  EXPECT_EQ(refusal(command),
            "[augment] --augment-program of this worker's agent is '" +
                record_of_program(command) + "', and the run's is '" + record +
                "': give headroom train and every agent the same one, with the "
                "same files");
  EXPECT_NE(record_of_program(command), record);
}

}  // namespace
}  // namespace headroom::configs
