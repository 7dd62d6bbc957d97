#include "coordinator/service/beat_gatherer.h"

#include <gmock/gmock.h>

#include "proto/convert.h"
#include "tests/coordinator/run/moments.h"
#include "tests/coordinator/service/local_run.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kSoon{1000};

wire::Beat beat_at(int ms, int64_t step) {
  wire::Beat beat{
      .sent = at(ms), .generation = 2, .has_progress = true, .progress = {}};
  beat.progress.step = step;
  return beat;
}

struct Gathered {
  BeatGatherer gatherer;
  wire::BeatChannel w0, w1;
  wire::HeartbeatRequest request;

  Gathered() {
    for (const auto& [worker_id, end] :
         {std::pair("w0", &w0), std::pair("w1", &w1)}) {
      auto [agents, workers] = wire::BeatChannel::make_pair();
      gatherer.add(worker_id, std::move(agents));
      *end = std::move(workers);
    }
  }
  std::optional<wire::BeatAnswer> answer_of(wire::BeatChannel& worker) {
    return worker.receive<wire::BeatAnswer>(kSoon);
  }
};

TEST(BeatGatherer, GathersTheNewestBeatOfEachWithItsAge) {
  Gathered all;
  all.gatherer.gather(at(0), all.request);
  EXPECT_EQ(all.request.beats_size(), 0) << "nobody has spoken";
  all.w0.send(beat_at(100, 5));
  all.w0.send(beat_at(350, 6));
  all.w1.send(beat_at(200, 6));
  for (const int late : {400, 650}) {
    all.gatherer.gather(at(late), all.request);
    ASSERT_EQ(all.request.beats_size(), 2);
    const wire::WorkerBeat& first = all.request.beats(0);
    EXPECT_EQ(first.worker_id(), "w0");
    EXPECT_EQ(first.generation(), 2u);
    EXPECT_EQ(first.progress().step(), 6);
    EXPECT_EQ(first.age_ms(), late - 350);
    EXPECT_EQ(all.request.beats(1).age_ms(), late - 200);
  }
}

TEST(BeatGatherer, HandsEachWorkerItsOwnAnswer) {
  Gathered all;
  all.w0.send(beat_at(0, 1));
  all.w1.send(beat_at(0, 1));
  all.gatherer.gather(at(100), all.request);
  wire::HeartbeatResponse response;
  response.set_peer_lost(true);
  wire::StaleBeat& stale = *response.add_stale_beats();
  stale.set_worker_id("w1");
  stale.set_reason("it was given up");
  all.gatherer.hand_back(grpc::Status::OK, response);
  const auto first = all.answer_of(all.w0), second = all.answer_of(all.w1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->generation, 2u);
  EXPECT_TRUE(first->peer_lost);
  EXPECT_STREQ(first->refusal, "");
  EXPECT_FALSE(second->peer_lost);
  EXPECT_STREQ(second->refusal, "it was given up");
}

// If the coordinator did not answer, the gatherer reports this to the workers,
// which then send their heartbeats themselves.
TEST(BeatGatherer, ReportsThatNoReplyArrived) {
  Gathered all;
  all.w0.send(beat_at(0, 1));
  all.gatherer.gather(at(100), all.request);
  all.gatherer.hand_back({grpc::StatusCode::UNAVAILABLE, "away"}, {});
  const auto answer = all.answer_of(all.w0);
  ASSERT_TRUE(answer);
  EXPECT_STREQ(answer->refusal, "");
  EXPECT_FALSE(answer->is_there);
  all.gatherer.hand_back({grpc::StatusCode::ABORTED, "another run"}, {});
  const auto refused = all.answer_of(all.w0);
  EXPECT_STREQ(refused->refusal, "another run");
  EXPECT_TRUE(refused->is_there);
  EXPECT_FALSE(all.w1.receive<wire::BeatAnswer>({})) << "it asked nothing";
}

// The agent was stopped, and meanwhile its workers' channels became full.
TEST(BeatGatherer, SendsNothingOldAfterAStall) {
  Gathered all;
  all.w0.send(beat_at(0, 1));
  all.gatherer.gather(at(100), all.request);
  ASSERT_EQ(all.request.beats_size(), 1);
  all.gatherer.gather(at(60'000), all.request);
  EXPECT_EQ(all.request.beats_size(), 0);
  all.w0.send(beat_at(60'100, 2));
  all.gatherer.gather(at(60'250), all.request);
  EXPECT_EQ(all.request.beats_size(), 1);
}

TEST(BeatGatherer, LeavesOutWorkersThatAreGone) {
  Gathered all;
  all.w0.send(beat_at(0, 1));
  all.w1.send(beat_at(0, 1));
  all.gatherer.gather(at(100), all.request);
  all.w0.hang_up();
  all.gatherer.gather(at(200), all.request);
  ASSERT_EQ(all.request.beats_size(), 1);
  EXPECT_EQ(all.request.beats(0).worker_id(), "w1");
}

// --- with a coordinator ------------------------------------------------------

std::unique_ptr<control::CoordinatorClient> gathered_worker(
    const LocalRun& run) {
  auto [agents, workers] = wire::BeatChannel::make_pair();
  run.agent->speak_for("w0", std::move(agents));
  return control::CoordinatorClient::connect(
      run.server->address(), run.identity("w0"), "127.0.0.1",
      control::kPatience, std::move(workers));
}

TEST(BeatGatherer, AWorkersHeartbeatsAndRepliesGoThroughItsAgent) {
  LocalRun run(1);
  const auto worker = gathered_worker(run);
  worker->next_assignment();
  wire::RunProgress progress;
  progress.step = 3;
  worker->set_progress(progress);
  // The agent collects the heartbeat. If it did not, the worker would send its
  // progress later than the limit below allows.
  const auto spoke = std::chrono::steady_clock::now();
  EXPECT_TRUE(
      eventually([&] { return run.server->status().progress.step == 3; }));
  EXPECT_LT(std::chrono::steady_clock::now() - spoke, milliseconds(1200));
  run.server->drain("enough");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return worker->stop_requested(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
}

// The worker's agent was killed, or is stopped.
TEST(BeatGatherer, AWorkerWhoseAgentIsGoneSendsItsOwnHeartbeats) {
  for (const bool is_killed : {true, false}) {
    LocalRun run(1);
    auto [agents, workers] = wire::BeatChannel::make_pair();
    const auto worker = control::CoordinatorClient::connect(
        run.server->address(), run.identity("w0"), "127.0.0.1",
        control::kPatience, std::move(workers));
    worker->next_assignment();
    if (is_killed) agents = {};
    wire::RunProgress progress;
    progress.step = 4;
    worker->set_progress(progress);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(
        eventually([&] { return run.server->status().progress.step == 4; }));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(4));
    EXPECT_EQ(run.state(), "running");
  }
}

}  // namespace
}  // namespace headroom::coordinator
