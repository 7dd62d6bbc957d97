// Two machines with an agent and a worker each, and what networks do to them:
// a cable that is pulled for 5 s, packets that come late or never.
//
// Skipped by name where name spaces cannot be made.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "coordinator/service/certificates.h"
#include "tests/integration/run_comparison.h"
#include "tests/integration/two_nodes.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kRun = "runs/train/exp";
constexpr auto kCut = std::chrono::seconds(5);

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
    coordinator::make_certificates(folder_ / "certs", {TwoNodes::address(0)});
  }

  // The coordinator and an agent on node 0, an agent on node 1; the run's
  // flags.
  void start(const std::vector<std::string>& more) {
    std::vector<std::string> words = train_fp64("8");
    words.insert(words.end(), more.begin(), more.end());
    words[1] = "coordinator";
    words.insert(words.end(), {"--listen", address(), "--expected-workers", "2",
                               "--certs", certs()});
    coordinator_ = begin("coordinator", 0, words);
    for (int node = 0; node < 2; ++node) {
      agents_[node] = begin("agent-" + std::to_string(node), node,
                            {program("headroom"), "agent", "--coordinator",
                             address(), "--certs", certs()});
    }
  }

  std::unique_ptr<Program> begin(const std::string& name, int node,
                                 const std::vector<std::string>& command) {
    fs::create_directories(folder_ / name);
    fs::current_path(folder_);  // where nsenter goes back to
    return std::make_unique<Program>(nodes_->on(node, command), folder_ / name);
  }

  void expect_all_end_well() {
    for (Program* const process :
         {coordinator_.get(), agents_[0].get(), agents_[1].get()}) {
      const ProgramResult result = process->join();
      EXPECT_EQ(result.exit_code, 0) << result.err;
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

  // After `count` steps, in the middle of one, for 5 s.
  void cut_and_heal(size_t count) {
    ASSERT_TRUE(wait_for_lines(log(), count, 120));
    const Clock::time_point begin = Clock::now();
    nodes_->cut();
    while (events("loss_of_process").empty() && seconds_since(begin) < 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::printf("cut after step %zu: noticed after %.2f s\n", count,
                seconds_since(begin));
    EXPECT_LT(seconds_since(begin), 2.5);
    std::this_thread::sleep_until(begin + kCut);
    nodes_->heal();
    healed_ = Clock::now();
  }

  void go_on_alone(const std::vector<std::string>& layout);

  void expect_ledger() const {
    const ProgramResult ledger = run_program(
        {program("headroom"), "status", (folder_ / kRun).string(), "--ledger"},
        folder_);
    EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
  }

  static std::string address() { return TwoNodes::address(0) + ":29500"; }
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

// Whoever waits for the other node is freed after 2 s, in a sum as in a
// message: node 0 goes on alone, and with node 1 again once the link is there.
void TwoNodesRun::go_on_alone(const std::vector<std::string>& layout) {
  const std::vector<std::string> calm = {
      "--max-steps", "100",       "--set", "hyp.lr0=1e-5",
      "--set",       "hyp.lrf=1", "--set", "hyp.warmup_epochs=0"};
  std::vector<std::string> flags = calm;
  flags.insert(flags.end(), layout.begin(), layout.end());
  start(flags);
  cut_and_heal(4);
  expect_all_end_well();
  std::vector<int> sizes;
  for (const Json& event : events("generation")) {
    sizes.push_back(event.at("world_size").get<int>());
  }
  EXPECT_EQ(sizes, (std::vector<int>{2, 1, 2}));
  const std::vector<Json> expected = undisturbed(calm, layout);
  const std::vector<Json> all = steps();
  ASSERT_EQ(all.size(), expected.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LT(relative(expected[i], all[i], "loss"), 1e-6) << i;
    EXPECT_EQ(all[i].at("samples"), expected[i].at("samples")) << i;
  }
  expect_ledger();
}

TEST_F(TwoNodesRun, TheLinkIsMeasuredAtTheStartSaidAndKept) {
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
  EXPECT_NE(said[0].at("reason").get<std::string>().find(
                "network: 2 machines over eth0, 0."),
            std::string::npos)
      << said[0];
}

TEST_F(TwoNodesRun, ALinkIsCutFor5SecondsInASum) {
  go_on_alone({"--layout", "data=2"});
}

class Slow : public TwoNodesRun {};

TEST_F(Slow, ALinkIsCutFor5SecondsInAMessage) {
  go_on_alone({"--layout", "pipeline=2"});
}

TEST_F(Slow, ALinkIsCutFor5SecondsBetweenStrips) {
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
