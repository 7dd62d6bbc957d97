#include "coordinator/log/run_state_snapshot.h"

#include <gtest/gtest.h>

#include <memory>

#include "parallel/base/check.h"
#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kGrace = seconds(10);

// The run as it is after a restart of the coordinator.
std::unique_ptr<ScriptedRun> successor_of(ScriptedRun& run, int workers) {
  auto successor = std::make_unique<ScriptedRun>(workers);
  ScriptedRun& next = *successor;
  const std::string bytes = RunStateSnapshot::of(run.state).SerializeAsString();
  wire::RunStateSnapshot image;
  EXPECT_TRUE(image.ParseFromString(bytes));
  RunStateSnapshot::restore(next.state, image, next.now, kGrace);
  EXPECT_EQ(RunStateSnapshot::of(next.state).SerializeAsString(), bytes);
  EXPECT_EQ(next.orders(), "");
  return successor;
}

TEST(RunStateSnapshot, OfARunThatHasNotBegun) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  const auto successor = successor_of(run, 2);
  ScriptedRun& next = *successor;
  EXPECT_EQ(next.state.phase(), RunPhase::kWaiting);
  next.join(1);
  EXPECT_EQ(next.orders(), "w0:run w1:run");
}

TEST(RunStateSnapshot, OfARunningRun) {
  ScriptedRun run(2);
  run.start();
  run.state.drain(run.now, "enough");
  const auto successor = successor_of(run, 2);
  ScriptedRun& next = *successor;
  EXPECT_EQ(next.state.phase(), RunPhase::kRunning);
  EXPECT_EQ(next.state.generation().number, 1u);
  EXPECT_EQ(next.state.generation().members, run.generation().members);
  EXPECT_EQ(next.state.generation().plan.layout.data_parallel_size,
            run.generation().plan.layout.data_parallel_size);
  EXPECT_TRUE(next.state.stop_requested());
  EXPECT_EQ(next.state.finish(next.now, "w0",
                              {.exit_code = 130,
                               .reason = "stopped",
                               .result_json = "{}",
                               .step = 3}),
            std::nullopt);
  EXPECT_TRUE(next.state.over());
}

// Plans after a loss use the network that was measured at the start.
TEST(RunStateSnapshot, HasTheMeasuredNetwork) {
  ScriptedRun run(2);
  run.start();
  EXPECT_FALSE(RunStateSnapshot::of(run.state).has_network());
  run.state.note_network({.machines = 2,
                          .interface = "eth0",
                          .slowest_bytes_per_second = 1.25e8,
                          .fastest_bytes_per_second = 1.5e8,
                          .latency_seconds = 1e-4,
                          .is_sample = true});
  const auto successor = successor_of(run, 2);
  const auto network = RunStateSnapshot::of(successor->state).network();
  EXPECT_EQ(network.machines(), 2);
  EXPECT_EQ(network.interface(), "eth0");
  EXPECT_EQ(network.slowest_bytes_per_second(), 1.25e8);
  EXPECT_EQ(network.fastest_bytes_per_second(), 1.5e8);
  EXPECT_EQ(network.latency_seconds(), 1e-4);
  EXPECT_TRUE(network.is_sample());
}

// After a restart, no member may be counted as lost because it could not send
// while the coordinator was down.
TEST(RunStateSnapshot, AfterARestoreEveryMemberHasTimeToSendAgain) {
  ScriptedRun run(2);
  run.start();
  const auto successor = successor_of(run, 2);
  ScriptedRun& next = *successor;
  next.pass(9000, {0, 1}, false);
  EXPECT_EQ(next.state.phase(), RunPhase::kRunning);
  next.pass(1000);
  next.pass(3000, {1});
  EXPECT_NE(next.state.phase(), RunPhase::kRunning) << "silent after all";
}

TEST(RunStateSnapshot, OfARunThatIsOver) {
  ScriptedRun run(1);
  run.start();
  run.finish("w0", {.reason = "all done",
                    .result_json = R"({"map": 1})",
                    .step = 12,
                    .says_how_to_go_on = true});
  const auto successor = successor_of(run, 1);
  ScriptedRun& next = *successor;
  EXPECT_TRUE(next.state.over());
  EXPECT_EQ(next.state.reason(), "all done");
  EXPECT_EQ(next.state.status(next.now).result_json, R"({"map": 1})");
  EXPECT_TRUE(next.state.status(next.now).says_how_to_go_on);
}

TEST(RunStateSnapshot, AnUnknownPhaseIsRefused) {
  ScriptedRun run(1);
  wire::RunStateSnapshot image = RunStateSnapshot::of(run.state);
  image.set_phase(99);
  EXPECT_THROW(RunStateSnapshot::restore(run.state, image, run.now, kGrace),
               Error);
}

}  // namespace
}  // namespace headroom::coordinator
