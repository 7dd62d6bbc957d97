#include "deploy/cli/machine_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::refusal_of;
using ::testing::StartsWith;
using testing::TemporaryFolder;

constexpr int64_t kMebibyte = int64_t{1} << 20;

// A container of which `mebibytes` MiB are still free.
MachineLimits container(int64_t mebibytes) {
  MachineLimits machine;
  machine.memory_bytes = (mebibytes + 70) * kMebibyte;
  machine.free_bytes = mebibytes * kMebibyte;
  machine.memory_is_of_container = true;
  machine.cores = machine.cores_of_mask = 4;
  return machine;
}

class MachineShareTest : public ::testing::Test {
 protected:
  MachineShareTest() {
    root_.folder("images");
    data_ =
        root_.write("data.yaml", "train: images\nval: images\nnames: [a, b]\n")
            .string();
  }

  RunRequest request(const MachineLimits& machine,
                     const std::vector<std::string>& more = {},
                     const std::string& command = "train") const {
    std::vector<std::string> words = {command,   "--data",   data_, "--cfg",
                                      "yolov5n", "--device", "cpu"};
    if (command == "train") {
      words.insert(words.end(), {"--project", root_.path().string()});
    }
    // A flag may be given once, so a default is added only if it is missing.
    const auto has = [&](const std::string& flag) {
      return std::ranges::find(more, flag) != more.end();
    };
    if (!has("--img")) words.insert(words.end(), {"--img", "160"});
    if (!has("--batch")) words.insert(words.end(), {"--batch", "8"});
    words.insert(words.end(), more.begin(), more.end());
    return make_run_request(parse_command_line(words), std::nullopt, 4, {},
                            command == "train", {}, machine);
  }

  TemporaryFolder root_;
  std::string data_;
};

TEST_F(MachineShareTest, ARunThatFitsIsLeftAsItIs) {
  const RunRequest run = request(container(16'000));
  EXPECT_EQ(run.config.memory_limit, 0);
  EXPECT_EQ(run.config.host_memory_limit, 0);
  EXPECT_EQ(run.config.loader_threads, 8);
  EXPECT_THAT(run.notes,
              Contains("memory: 15.7 GiB by the container's limit (cgroup), "
                       "15.6 GiB free"));
  MachineLimits bare = container(16'000);
  bare.memory_is_of_container = false;
  EXPECT_THAT(request(bare).notes, IsEmpty());
}

TEST_F(MachineShareTest, TheLoaderShrinksFirst) {
  const RunRequest run = request(container(1200));
  EXPECT_EQ(run.config.memory_limit, 0);
  EXPECT_GT(run.config.host_memory_limit, 0);
  EXPECT_LT(run.config.host_memory_limit, (1200 - 264) * kMebibyte);
  EXPECT_THAT(run.notes,
              Contains(StartsWith(
                  "memory: 1.24 GiB by the container's limit (cgroup), 1.17 "
                  "GiB free; each worker may take ")));
}

TEST_F(MachineShareTest, ThenThePlanIsBoundToo) {
  const RunRequest run = request(container(430), {"--batch", "32"});
  const int64_t room = (430 - 264) * kMebibyte;
  EXPECT_EQ(run.config.memory_limit + run.config.host_memory_limit, room);
  EXPECT_GT(run.config.memory_limit, run.config.host_memory_limit);
  EXPECT_THAT(run.notes, Contains(HasSubstr("for its tensors and")));
  EXPECT_THAT(run.notes, Contains(StartsWith("plan: ")));
  // So the run offloads nothing either.
  EXPECT_TRUE(run.config.memory_limit_is_machines);
  EXPECT_TRUE(request(container(500), {"--batch", "-1"})
                  .config.memory_limit_is_machines);
}

// The free memory of a machine changes from minute to minute.
TEST_F(MachineShareTest, TheFreeMemoryOfAMachineDoesNotChangeThePlan) {
  MachineLimits bare = container(410);
  bare.memory_is_of_container = false;
  const RunRequest run = request(bare, {"--img", "640", "--batch", "16"});
  EXPECT_EQ(run.config.memory_limit, 0);
  EXPECT_GT(run.config.host_memory_limit, 0);
  EXPECT_THAT(run.notes,
              Contains(StartsWith("warning: memory: 480 MiB of this machine, "
                                  "410 MiB free, but the run may need ")));
}

// The planner assumes images as large as the network's input.
TEST_F(MachineShareTest, TheLoadersKeepRoomForLargerImages) {
  const auto host_limit = [&](const std::vector<std::string>& more) {
    return request(container(700), more).config.host_memory_limit;
  };
  EXPECT_GE(host_limit({}), 64 * kMebibyte);
  EXPECT_GE(host_limit({"--img", "640"}), 2 * 48 * kMebibyte);
  EXPECT_GE(request(container(430), {"--batch", "-1"}).config.host_memory_limit,
            64 * kMebibyte);
}

// --host-memory-limit also bounds the file of offloaded tensors.
TEST_F(MachineShareTest, OffloadThatWasAskedForGetsNoLimit) {
  MachineLimits bare = container(1200);
  bare.memory_is_of_container = false;
  const RunRequest run =
      request(bare, {"--img", "320", "--activations", "offload"});
  EXPECT_EQ(run.config.host_memory_limit, 0);
  EXPECT_THAT(run.notes, Contains(HasSubstr("but the run may need 1.")));
}

// A plan would fit with batch-norm groups of two and offload.
TEST_F(MachineShareTest, NoLimitOfAContainerChangesWhatIsTrained) {
  const MachineLimits machine = container(460);
  const std::vector<std::string> asked = {"--img", "640", "--batch", "16"};
  const std::string refusal =
      refusal_of([&] { request(machine, asked); }, ExitCode::kNoPlan);
  EXPECT_THAT(refusal,
              StartsWith("[plan] memory: 530 MiB by the container's limit "
                         "(cgroup), 460 MiB free; each worker may take "));
  EXPECT_THAT(refusal, HasSubstr(": a process needs "));
  EXPECT_THAT(refusal, HasSubstr(", or give the container more memory"));
  EXPECT_THAT(refusal, Not(HasSubstr("--memory-limit")));
  EXPECT_THAT(refusal, Not(HasSubstr("--processes")));
  EXPECT_THAT(
      refusal_of([&] { request(machine, asked, "plan"); }, ExitCode::kNoPlan),
      StartsWith(refusal.substr(0, refusal.find(": use headroom"))));
  // The smaller batch that the refusal names fits.
  const size_t at = refusal.find("--batch 16") == std::string::npos
                        ? refusal.find("--batch ")
                        : refusal.rfind("--batch ");
  ASSERT_NE(at, std::string::npos) << refusal;
  const std::string batch = std::to_string(std::stoi(refusal.substr(at + 8)));
  EXPECT_EQ(refusal_of([&] {
              request(machine, {"--img", "640", "--batch", batch});
            }),
            "accepted")
      << refusal;
}

TEST_F(MachineShareTest, WorkersShareWhatIsFree) {
  const RunRequest two =
      request(container(1000), {"--batch", "32", "--processes", "2"});
  EXPECT_LE(2 * (two.config.memory_limit + two.config.host_memory_limit),
            (1000 - 64 - 400) * kMebibyte);
}

TEST_F(MachineShareTest, LimitsOfTheCommandAreKept) {
  const RunRequest run =
      request(container(430), {"--batch", "32", "--memory-limit", "1GiB",
                               "--host-memory-limit", "300MiB"});
  EXPECT_EQ(run.config.memory_limit, 1024 * kMebibyte);
  EXPECT_EQ(run.config.host_memory_limit, 300 * kMebibyte);
  EXPECT_FALSE(run.config.memory_limit_is_machines);
}

TEST_F(MachineShareTest,
       WhereProgramsAndLoadersDoNotFitTheRefusalNamesBothNumbers) {
  EXPECT_EQ(refusal_of([&] { request(container(250)); }, ExitCode::kNoPlan),
            "[memory] 320 MiB by the container's limit (cgroup), 250 MiB free, "
            "and 1 worker takes 264 MiB before the first tensor: give the "
            "container or the machine more memory");
  EXPECT_THAT(refusal_of([&] { request(container(300)); }, ExitCode::kNoPlan),
              StartsWith("[memory] 370 MiB by the container's limit (cgroup), "
                         "300 MiB free, and 1 worker takes 264 MiB before the "
                         "first tensor, which leaves 36 MiB to each, but its "
                         "loaders take 64 MiB: use a smaller --img"));
}

TEST_F(MachineShareTest, TheLargestBatchIsTheContainers) {
  const auto batch = [&](int64_t mebibytes) {
    return request(container(mebibytes), {"--batch", "-1"})
        .config.global_batch_size;
  };
  const int64_t small = batch(500), large = batch(2000);
  EXPECT_GE(small, 1);
  EXPECT_GT(large, 2 * small);
  EXPECT_THAT(refusal_of([&] {
                request({}, {"--batch", "-1"});
              }),
              HasSubstr("nothing says in what"));
}

TEST_F(MachineShareTest, AQuotaBoundsTheLoadersThreads) {
  MachineLimits machine = container(16'000);
  machine.cores = 2;
  machine.cores_of_mask = 16;
  machine.cores_are_of_container = true;
  EXPECT_EQ(request(machine).config.loader_threads, 4);
  EXPECT_THAT(request(machine).notes,
              Contains("cores: 2 by the container's quota (cgroup), of 16"));
  EXPECT_EQ(request(machine, {"--workers", "6"}).config.loader_threads, 6);
}

// The run recorded the limits of a small container. They are not the user's
// own, so a resume with less memory lowers them again.
TEST_F(MachineShareTest, AResumedRunIsBoundByTheMachineOfItsNewStart) {
  configs::RunConfig config = request(container(1200)).config;
  config.resume.clear();
  root_.write("exp/run.yaml", configs::to_yaml(config));
  root_.folder("exp/checkpoints");
  const RunRequest again =
      make_run_request(parse_command_line({"train", "--resume",
                                           (root_.path() / "exp").string()}),
                       std::nullopt, 4, {}, true, {}, container(500));
  EXPECT_LT(again.config.host_memory_limit, config.host_memory_limit);
}

}  // namespace
}  // namespace headroom::cli
