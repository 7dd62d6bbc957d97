// Tests two machines with an agent and a worker each, and faults of the network
// between them: a cable that is pulled, forever or for a moment, and packets
// that are late or lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <ostream>
#include <thread>

#include "coordinator/service/certificates.h"
#include "tests/integration/run_comparison.h"
#include "tests/integration/two_nodes.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kRun = "runs/train/exp";
// A silent node counts as lost after 5 s (coordinator/run/silence.h).
constexpr double kNoticed = 6;
constexpr auto kCut = std::chrono::seconds(8);
constexpr auto kStall = std::chrono::seconds(2);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class TwoNodesRun : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    if (const std::string why = TwoNodes::unavailable_error(folder_);
        !why.empty()) {
      GTEST_SKIP() << why;
    }
    nodes_.emplace(folder_);
    coordinator::make_certificates(
        folder_ / "certs", {TwoNodes::address(0), TwoNodes::address(1)});
  }

  // Starts an agent on each node, and the coordinator on one of them, with the
  // flags of the run. Rank 0 is on node 0.
  void start(const std::vector<std::string>& more, int coordinators_node = 0) {
    const std::string address = TwoNodes::address(coordinators_node) + ":29500";
    std::vector<std::string> words = train_fp64("8");
    words.insert(words.end(), more.begin(), more.end());
    words[1] = "coordinator";
    words.insert(words.end(), {"--listen", address, "--expected-workers", "2",
                               "--certs", certs()});
    // Under another host name, as rank 0 would be on the coordinator's machine.
    const std::vector<std::string> apart = {
        "unshare", "--uts", "sh", "-c", "hostname apart && exec \"$@\"", "sh"};
    coordinator_ = begin("coordinator", coordinators_node,
                         coordinators_node == 0 ? words : joined(apart, words));
    for (int node = 0; node < 2; ++node) {
      agents_[node] = begin("agent-" + std::to_string(node), node,
                            {program("headroom"), "agent", "--coordinator",
                             address, "--certs", certs()});
    }
  }

  std::unique_ptr<Program> begin(const std::string& name, int node,
                                 const std::vector<std::string>& command) {
    fs::create_directories(folder_ / name);
    fs::current_path(folder_);  // nsenter returns to this folder
    return std::make_unique<Program>(nodes_->on(node, command), folder_ / name);
  }

  void expect_all_end_well(int exit_code = 0) {
    for (Program* const process :
         {coordinator_.get(), agents_[0].get(), agents_[1].get()}) {
      const ProgramResult result = process->join();
      EXPECT_EQ(result.exit_code, exit_code) << result.err;
    }
  }

  // The same run on one machine.
  std::vector<Json> undisturbed(const std::vector<std::string>& flags,
                                const std::vector<std::string>& layout) const {
    std::vector<std::string> words = flags;
    words.insert(words.end(), layout.begin(), layout.end());
    return train_in(folder_ / "undisturbed", train_fp64("8"), words);
  }

  fs::path log() const { return folder_ / kRun / "steps.jsonl"; }
  std::vector<Json> steps() const { return read_lines(log()); }
  std::vector<Json> events(const std::string& name) const {
    std::vector<Json> all = read_lines(folder_ / kRun / "events.jsonl");
    std::erase_if(all,
                  [&](const Json& event) { return event.at("event") != name; });
    return all;
  }

  // Cuts the link, waits until the run continues in another generation, and
  // heals it.
  void cut_and_heal(const std::string& where) {
    const Clock::time_point begin = Clock::now();
    nodes_->cut();
    while (events("generation").size() < 2 && seconds_since(begin) < 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const double ended = seconds_since(begin);
    std::printf("cut %s: the operation ended after %.2f s\n", where.c_str(),
                ended);
    EXPECT_LT(ended, kNoticed);
    std::this_thread::sleep_until(begin + kCut);
    nodes_->heal();
    healed_ = Clock::now();
  }

  void go_on_alone(const std::vector<std::string>& layout);
  void stall(int times);
  // Expects the losses and samples of a run on one machine.
  void expect_steps_of(const std::vector<std::string>& flags,
                       const std::vector<std::string>& layout) const;

  void expect_ledger() const {
    const ProgramResult ledger = run_program(
        {program("headroom"), "status", (folder_ / kRun).string(), "--ledger"},
        folder_);
    EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
  }

  std::string certs() const { return (folder_ / "certs").string(); }

  fs::path folder_;
  Clock::time_point healed_;
  std::optional<TwoNodes> nodes_;
  std::unique_ptr<Program> coordinator_;
  std::unique_ptr<Program> agents_[2];
};

void expect_same_bits(const std::vector<Json>& steps,
                      const std::vector<Json>& expected) {
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << i;
    EXPECT_EQ(steps[i].at("grad_norm"), expected[i].at("grad_norm")) << i;
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples")) << i;
  }
}

const std::vector<std::string> kCalm = {"--set", "hyp.lr0=1e-5",
                                        "--set", "hyp.lrf=1",
                                        "--set", "hyp.warmup_epochs=0"};

const std::vector<std::string> kLazy = {"--set", "full_mesh_ranks=1"};

void TwoNodesRun::expect_steps_of(
    const std::vector<std::string>& flags,
    const std::vector<std::string>& layout) const {
  const std::vector<Json> expected = undisturbed(flags, layout);
  const std::vector<Json> all = steps();
  ASSERT_EQ(all.size(), expected.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LT(relative(expected[i], all[i], "loss"), 1e-6) << i;
    EXPECT_EQ(all[i].at("samples"), expected[i].at("samples")) << i;
  }
  expect_ledger();
}

TEST_F(TwoNodesRun, TheLinkIsMeasuredAtTheStartReportedAndKept) {
  nodes_->limit_to(200);
  start({"--max-steps", "2", "--layout", "data=2"});
  expect_all_end_well();
  const Json rates = read_json(folder_ / kRun / "plan.json").at("network");
  EXPECT_EQ(rates.at("machines"), 2);
  EXPECT_EQ(rates.at("interface"), "eth0");
  const auto megabits =
      rates.at("slowest_bytes_per_second").get<double>() * 8 / 1e6;
  EXPECT_GT(megabits, 100);
  EXPECT_LT(megabits, 300);
  EXPECT_LT(rates.at("latency_seconds").get<double>(), 0.05);
  const std::vector<Json> said = events("network");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0].at("reason").get<std::string>(),
              HasSubstr("network: 2 machines over eth0, 0."))
      << said[0];
}

// Ranks that wait for the other node, in an all-reduce or for a message, stop
// waiting. Node 0 then trains alone, and node 1 joins again once the link
// works.
void TwoNodesRun::go_on_alone(const std::vector<std::string>& layout) {
  const std::vector<std::string> calm = joined(kCalm, {"--max-steps", "150"});
  start(joined(calm, layout));
  ASSERT_TRUE(wait_for_lines(log(), 4, 120));
  cut_and_heal("after step 4");
  expect_all_end_well();
  std::vector<int> sizes;
  for (const Json& event : events("generation")) {
    sizes.push_back(event.at("world_size").get<int>());
  }
  EXPECT_EQ(sizes, (std::vector<int>{2, 1, 2}));
  expect_steps_of(calm, layout);
}

// Steps take longer, but the run is not disturbed in any other way.
void TwoNodesRun::stall(int times) {
  start({"--max-steps", "100000", "--layout", "data=2"});
  ASSERT_TRUE(wait_for_lines(log(), 4, 120));
  for (int i = 0; i < times; ++i) {
    nodes_->cut();
    std::this_thread::sleep_for(kStall);
    nodes_->heal();
    const size_t before = steps().size();
    EXPECT_TRUE(wait_for_lines(log(), before + 2, 30)) << "after stall " << i;
    // The pauses are not in step with the heartbeats.
    std::this_thread::sleep_for(std::chrono::milliseconds(500 + 37 * (i % 7)));
  }
  for (const pid_t pid : descendants(coordinator_->pid(), "coordinator")) {
    kill(pid, SIGINT);
  }
  expect_all_end_well(130);
  for (const char* alarm : {"loss_of_process", "agent_silent", "restart"}) {
    for (const Json& event : events(alarm)) {
      ADD_FAILURE() << event.at("reason");
    }
  }
  EXPECT_EQ(events("generation").size(), 1u);
  expect_ledger();
}

TEST_F(TwoNodesRun, ALinkIsCutFor8SecondsInASum) {
  go_on_alone({"--layout", "data=2"});
}

TEST_F(TwoNodesRun, AStallOf2SecondsIsNoAlarm) { stall(5); }

class Slow : public TwoNodesRun {};

TEST_F(Slow, FiftyStallsOf2SecondsAreNoAlarm) { stall(50); }

// One rank pauses, so that the other rank is inside the operation when the
// cable is cut.
struct Collective {
  std::string name;
  std::vector<std::string> layout;
  std::string pause;
  int coordinators_node = 0;
  // Rank 0 is cut off, but still alive, and holds the run's folder. So no other
  // process writes there, and the run ends.
  bool cuts_rank_0_off() const { return coordinators_node == 1; }
};
void PrintTo(const Collective& cut, std::ostream* out) { *out << cut.name; }

class SlowCut : public TwoNodesRun,
                public ::testing::WithParamInterface<Collective> {};

TEST_P(SlowCut, RanksThatWaitForTheOtherNodeAreReleased) {
  const Collective& cut = GetParam();
  // Node 0 alone must not finish before node 1 has returned.
  const std::vector<std::string> calm =
      joined(kCalm, {"--max-steps", cut.cuts_rank_0_off() ? "12" : "40"});
  start(joined(joined(calm, cut.layout),
               {"--inject", "pause@" + cut.pause + ",seconds=4"}),
        cut.coordinators_node);
  const Clock::time_point begin = Clock::now();
  const auto has_paused = [&] {
    return (text_of(folder_ / "agent-0" / "stderr.txt") +
            text_of(folder_ / "agent-1" / "stderr.txt"))
               .find("--inject pause@") != std::string::npos;
  };
  while (!has_paused() && seconds_since(begin) < 120) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(has_paused());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  cut_and_heal("in " + cut.name);
  if (cut.cuts_rank_0_off()) {
    EXPECT_EQ(coordinator_->join().exit_code, 5);
  } else {
    expect_all_end_well();
  }
  expect_steps_of(calm, cut.layout);
}

INSTANTIATE_TEST_SUITE_P(
    Slow, SlowCut,
    ::testing::Values(
        Collective{"all_reduce",
                   {"--layout", "data=2"},
                   "rank=1,step=4,phase=backward"},
        Collective{"gather",
                   {"--layout", "data=2", "--zero", "3"},
                   "rank=1,step=4,phase=forward"},
        Collective{"scatter",
                   {"--layout", "data=2", "--zero", "3"},
                   "rank=1,step=4,phase=backward"},
        Collective{"lazy_all_reduce", joined({"--layout", "data=2"}, kLazy),
                   "rank=1,step=4,phase=backward"},
        Collective{"lazy_gather",
                   joined({"--layout", "data=2", "--zero", "3"}, kLazy),
                   "rank=1,step=4,phase=forward"},
        Collective{"lazy_send", joined({"--layout", "pipeline=2"}, kLazy),
                   "rank=1,step=4,phase=forward"},
        Collective{
            "send", {"--layout", "pipeline=2"}, "rank=1,step=4,phase=forward"},
        Collective{
            "barrier", {"--layout", "data=2"}, "rank=0,step=12,phase=end", 1}),
    [](const auto& info) { return info.param.name; });

TEST_F(Slow, ALinkIsCutFor8SecondsInAMessage) {
  go_on_alone({"--layout", "pipeline=2"});
}

TEST_F(Slow, ALinkIsCutFor8SecondsBetweenStrips) {
  go_on_alone({"--layout", "spatial=2"});
}

TEST_F(Slow, LateAndLostPacketsChangeNothing) {
  const std::vector<std::string> flags = {"--max-steps", "8"};
  std::printf("%s\n", nodes_->make_worse().c_str());
  start(flags);
  expect_all_end_well();
  std::printf("%lld packets were dropped\n",
              static_cast<long long>(nodes_->dropped()));
  EXPECT_GT(nodes_->dropped(), 0);
  expect_same_bits(steps(), undisturbed(flags, {"--processes", "2"}));
  for (const Json& event : events("loss_of_process")) {
    ADD_FAILURE() << event.at("reason");
  }
}

}  // namespace
}  // namespace headroom::testing
