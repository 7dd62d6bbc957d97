// Tests what the remaining workers save after the coordinator is lost.
#include "worker/checkpoint/orphaned_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/mesh.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/step/zero_run.h"
#include "worker/checkpoint/checkpoint.h"

namespace headroom::checkpoint {
namespace {

using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

// Another process writes a newer checkpoint before this one finds its own.
TEST(OrphanedState, ALineIsReturnedOnlyForTheNewestCheckpoint) {
  const testing::TemporaryFolder folder;
  const auto checkpoints = folder.folder("checkpoints");
  const auto world = collectives::make_single_communicator();
  collectives::Mesh mesh(*world, {});
  step::TrainingState state(model::tiny_table(), step::zero_options({}, &mesh));
  const CheckpointSaver saver({checkpoints, "{}", 2, true}, state, mesh);
  const auto held_after = [&](int64_t step) {
    state.counters.committed_steps = step;
    return hold_state(state, "the line of " + std::to_string(step - 1));
  };
  const HostStateSnapshot ten = held_after(10), eleven = held_after(11);
  HostStateSnapshot part_of_eleven = eleven;
  part_of_eleven.parts.resize(1);
  OrphanedState ours{checkpoints, "{}", 2, saver.blocks(), 0};
  OrphanedState theirs = ours;
  theirs.rank = 1;
  OrphanedSave other;
  std::thread another([&] {
    const auto end = SteadyClock::now() + seconds(20);
    while (newest_checkpoint(checkpoints) < 10 && SteadyClock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    other = save_orphaned(theirs, {eleven}, seconds(20));
  });
  const OrphanedSave saved =
      save_orphaned(ours, {ten, part_of_eleven}, seconds(40));
  another.join();
  EXPECT_EQ(other.step, 11);
  EXPECT_EQ(other.newest_line, "the line of 10");
  EXPECT_EQ(saved.step, 11);
  EXPECT_EQ(saved.newest_line, std::nullopt);
}

}  // namespace
}  // namespace headroom::checkpoint
