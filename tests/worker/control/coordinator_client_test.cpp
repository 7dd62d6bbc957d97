// Tests a worker whose coordinator is late or gone, or refuses the worker.
#include "worker/control/coordinator_client.h"

#include <gmock/gmock.h>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "tests/coordinator/service/cuttable_wire.h"
#include "tests/coordinator/service/local_run.h"

namespace headroom::control {
namespace {

using coordinator::ControlClient;
using coordinator::CuttableWire;
using coordinator::eventually;
using coordinator::LocalRun;
using coordinator::NodeRegistration;
using coordinator::RunStatus;
using coordinator::Server;
using coordinator::ServerOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(CoordinatorClient, WaitsForACoordinatorThatStartsLater) {
  std::string address;
  {
    const LocalRun earlier(1);  // finds a free port
    address = earlier.server->address();
  }
  std::unique_ptr<ControlClient> agent = ControlClient::connect(address);
  std::thread registers([&] {
    NodeRegistration node;
    node.node_id = "n";
    node.worker_ids = {"w0"};
    EXPECT_EQ(agent->register_node(node).run_directory(), "/runs/later");
  });
  std::this_thread::sleep_for(milliseconds(500));
  ServerOptions options = LocalRun::options(1, "/runs/later");
  options.listen = address;
  const auto server = Server::start(options);
  registers.join();
  const auto worker = CoordinatorClient::connect(
      address, {"n", "w0", agent->secret_of("w0")}, "127.0.0.1");
  EXPECT_EQ(worker->next_assignment().run_directory, "/runs/later");
}

TEST(CoordinatorClient, ARefusalIsAnErrorWithTheCoordinatorsText) {
  LocalRun run(1);
  EXPECT_THAT(
      [&] {
        CoordinatorClient::connect(run.server->address(),
                                   run.identity("stranger"), "127.0.0.1");
      },
      ThrowsMessage<Error>("[coordinator] joining the coordinator at " +
                           run.server->address() +
                           ": worker stranger belongs to no registered node"));
  const auto w0 = run.worker(0);
  EXPECT_THAT([&] { run.worker(0); },
              ThrowsMessage<Error>(HasSubstr("has joined already")));
}

// A generation may take minutes to form. A worker that waits for it is not
// stuck, and must not count as stuck when the generation begins.
TEST(CoordinatorClient, AWorkerThatWaitsForAnAssignmentIsNotStuck) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  PeerWait::sign_of_life();
  std::thread waits([&] { w0->next_assignment(); });
  std::this_thread::sleep_for(seconds(2));
  EXPECT_EQ(PeerWait::quiet(), milliseconds(0));
  const auto w1 = run.worker(1);
  waits.join();
  EXPECT_LT(PeerWait::quiet(), seconds(1));
}

TEST(CoordinatorClient, ProgressTravelsWithHeartbeatsAndCommits) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  wire::RunProgress progress;
  progress.step = 3;
  progress.num_steps = 100;
  progress.epoch = 1;
  progress.num_epochs = 5;
  progress.step_in_epoch = 2;
  progress.steps_per_epoch = 20;
  progress.losses = {{"box", 0.25}, {"cls", 0.5}, {"dfl", 0.125}};
  progress.images_per_second = 64;
  progress.measured_peak_bytes = 1 << 30;
  progress.predicted_peak_bytes = 1 << 29;
  progress.image_height = 320;
  progress.image_width = 640;
  progress.phase = wire::WorkerPhase::kTrain;
  w0->set_progress(progress);
  ASSERT_TRUE(
      eventually([&] { return run.server->status().progress.step == 3; }));
  const RunStatus status = run.agent->status();
  EXPECT_EQ(status.progress.num_steps, 100);
  EXPECT_EQ(status.progress.epoch, 1);
  EXPECT_EQ(status.progress.num_epochs, 5);
  EXPECT_EQ(status.progress.step_in_epoch, 2);
  EXPECT_EQ(status.progress.steps_per_epoch, 20);
  EXPECT_EQ(status.progress.losses,
            (NamedLosses{{"box", 0.25}, {"cls", 0.5}, {"dfl", 0.125}}));
  EXPECT_EQ(status.progress.images_per_second, 64);
  EXPECT_EQ(status.progress.measured_peak_bytes, 1 << 30);
  EXPECT_EQ(status.progress.predicted_peak_bytes, 1 << 29);
  EXPECT_EQ(status.progress.image_height, 320);
  EXPECT_EQ(status.progress.image_width, 640);
  EXPECT_EQ(status.progress.phase, wire::WorkerPhase::kTrain);
  ASSERT_EQ(status.members.size(), 1u);
  EXPECT_EQ(status.members[0].measured_peak_bytes, 1 << 30);
  EXPECT_LT(status.members[0].heartbeat_age_seconds, 2);
  progress.step = 4;
  w0->commit(4, 1.5, progress);
  EXPECT_TRUE(
      eventually([&] { return run.server->status().progress.step == 4; }));
}

TEST(CoordinatorClient, HeartbeatsKeepAnIdleRunAlive) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  const auto w1 = run.worker(1);
  std::this_thread::sleep_for(milliseconds(2600));
  EXPECT_EQ(run.state(), "running");
  EXPECT_LT(run.agent->node_orders().silence_seconds, 2);
}

TEST(CoordinatorClient, WithoutACoordinatorTrainingGoesOnForAWhile) {
  auto run = std::make_unique<LocalRun>(1);
  const auto w0 = run->worker(0);
  w0->next_assignment();
  const std::string address = run->server->address();
  // The server stops without telling the worker, and nothing listens on its
  // port any more.
  run->server->stop();
  run.reset();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < 3000; ++step) {
    w0->commit(step, 0.5, wire::RunProgress());
    w0->report_event(RunEvent());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(6));
  EXPECT_FALSE(w0->stop_requested());
  EXPECT_THROW(
      w0->report_failure(
          {.exit_code = 5, .message = "x", .kind = FailureKind::kLostPeer}),
      CommunicationError);
}

TEST(CoordinatorClient, ALostCoordinatorIsGivenUpAfterTheClientsPatience) {
  LocalRun run(2);
  CuttableWire wire(run.server->address());
  const auto w0 = CoordinatorClient::connect(wire.address(), run.identity("w0"),
                                             "127.0.0.1", seconds(3));
  const auto begin = std::chrono::steady_clock::now();
  wire.cut();
  EXPECT_THAT(
      [&] { w0->next_assignment(); },
      ThrowsMessage<CommunicationError>(HasSubstr(
          "no answer from the coordinator at " + wire.address() + " for 3 s")));
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, seconds(3));
  EXPECT_LT(waited, seconds(13));
}

TEST(CoordinatorClient, ARestoredConnectionBringsTheCoordinatorsVerdict) {
  LocalRun run(2);
  CuttableWire wire(run.server->address());
  const auto w0 = CoordinatorClient::connect(wire.address(), run.identity("w0"),
                                             "127.0.0.1");
  wire.cut();
  ASSERT_TRUE(eventually([&] {
    return run.server->status().members.front().state ==
           coordinator::MemberActivity::kGone;
  }));
  wire.mend();
  // A broken stream means that the worker has left. No worker may join again
  // under the same name.
  EXPECT_THAT([&] { w0->next_assignment(); },
              ThrowsMessage<Error>(HasSubstr("worker w0 ")));
}

}  // namespace
}  // namespace headroom::control
