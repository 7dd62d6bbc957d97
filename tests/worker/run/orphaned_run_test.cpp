// Tests which runs a worker without a coordinator changes, and its messages.
#include "worker/run/orphaned_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "parallel/base/run_files.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/mesh.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/step/zero_run.h"
#include "worker/checkpoint/checkpoint_saver.h"

namespace headroom::run {
namespace {

using ::testing::HasSubstr;

std::string line_of(int64_t step) {
  return "{\"step\":" + std::to_string(step) + "}\n";
}

// A worker that holds the whole state after three steps.
class OrphanedRunFiles : public ::testing::Test {
 protected:
  OrphanedRunFiles() {
    state_.counters.committed_steps = 3;
    carried_.held = {checkpoint::hold_state(state_, "{\"step\":2}")};
    carried_.orphan = {.checkpoints = folder_.folder("checkpoints"),
                       .plan_json = "{}",
                       .blocks = saver_.blocks()};
  }

  const testing::TemporaryFolder folder_;
  std::unique_ptr<collectives::Communicator> world_ =
      collectives::make_single_communicator();
  collectives::Mesh mesh_{*world_, {}};
  step::TrainingState state_{model::tiny_table(),
                             step::zero_options({}, &mesh_)};
  checkpoint::CheckpointSaver saver_{
      {folder_.path() / "checkpoints", "{}", 2, true}, state_, mesh_};
  CrossGenerationState carried_;
};

TEST_F(OrphanedRunFiles, TheLineThatRank0DidNotWriteIsAdded) {
  folder_.write("steps.jsonl", line_of(0) + line_of(1));
  EXPECT_EQ(save_orphaned_run(carried_), "the state after 3 steps is saved");
  EXPECT_EQ(folder_.read("steps.jsonl"), line_of(0) + line_of(1) + line_of(2));
}

// A copy that a rank keeps for a lost one has no line: rank 0 has written it.
TEST_F(OrphanedRunFiles, LinesAfterTheSavedStateAreRemovedAlsoForACopy) {
  carried_.held.front().newest_line = "";
  const std::string lines = line_of(0) + line_of(1) + line_of(2);
  folder_.write("steps.jsonl", lines + line_of(3));
  EXPECT_EQ(save_orphaned_run(carried_), "the state after 3 steps is saved");
  EXPECT_EQ(folder_.read("steps.jsonl"), lines);
}

// The lines of an older run do not count, although there are more of them.
TEST_F(OrphanedRunFiles, AnOlderRunIsNamed) {
  std::string lines;
  for (int64_t step = 0; step < 10; ++step) lines += line_of(step);
  folder_.write("steps.jsonl", lines);
  folder_.write(run_files::kOlderRun, "");
  EXPECT_THAT(save_orphaned_run(carried_), HasSubstr("the older run in "));
  EXPECT_EQ(folder_.read("steps.jsonl"), lines);
}

TEST_F(OrphanedRunFiles, ARunThatGoesOnMeanwhileKeepsItsLines) {
  const std::filesystem::path steps =
      folder_.write("steps.jsonl", line_of(0) + line_of(1));
  // Another process has begun this checkpoint; the worker waits 2 s for it.
  folder_.write("checkpoints/step-3/state.safetensors", "begun");
  auto line = std::async(std::launch::async,
                         [&] { return save_orphaned_run(carried_); });
  while (!std::filesystem::exists(folder_.path() / "checkpoints/parts")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ofstream(steps, std::ios::app) << line_of(2) << line_of(3) << line_of(4);
  EXPECT_EQ(line.get(), "the state after 3 steps is saved");
  EXPECT_EQ(folder_.read("steps.jsonl"),
            line_of(0) + line_of(1) + line_of(2) + line_of(3) + line_of(4));
}

}  // namespace
}  // namespace headroom::run
