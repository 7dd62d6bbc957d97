// Two agents on spot machines, and a metadata service that takes the machines
// away: the node is drained, the other nodes continue, and no step is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/deploy/cli/fake_metadata.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr const char* kRun = "runs/train/exp";
constexpr size_t kSteps = 120;
// A notice gives two minutes. The agents poll every 5 s.
constexpr double kInTime = 30;
// The time is far in the past, because the clock of this machine must not
// matter.
constexpr const char* kTime = "2020-02-03T12:34:56Z";

class Spot : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    for (const char* name : {"coordinator", "agent-0", "agent-1"}) {
      fs::create_directories(folder_ / name);
    }
    certs_ = (folder_ / "certs").string();
    ASSERT_EQ(run_program(
                  {program("headroom"), "coordinator", "--init-certs", certs_},
                  folder_)
                  .exit_code,
              0);
  }

  std::vector<std::string> flags() const {
    return joined(
        train_fp64("16"),
        {"--max-steps", std::to_string(kSteps), "--set", "hyp.lr0=1e-5",
         "--set", "hyp.lrf=1", "--set", "hyp.warmup_epochs=0"});
  }

  std::unique_ptr<Program> coordinator() {
    std::vector<std::string> words =
        joined(flags(),
               {"--listen", "127.0.0.1:0", "--expected-workers", "2", "--certs",
                certs_, "--project", (folder_ / "runs/train").string()});
    words[1] = "coordinator";
    auto process = std::make_unique<Program>(words, folder_ / "coordinator");
    const fs::path said = folder_ / "coordinator/stderr.txt";
    const std::string mark = "listening on ";
    for (int i = 0; i < 1000; ++i) {
      const std::string text = text_of(said);
      const size_t at = text.find(mark);
      if (at != std::string::npos && text.find('\n', at) != std::string::npos) {
        const size_t begin = at + mark.size();
        address_ = text.substr(begin, text.find('\n', begin) - begin);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_NE(address_, "") << text_of(said);
    return process;
  }

  std::unique_ptr<Program> agent(int index) {
    return std::make_unique<Program>(
        std::vector<std::string>{program("headroom"), "agent", "--coordinator",
                                 address_, "--certs", certs_, "--spot",
                                 services_[index].address()},
        folder_ / ("agent-" + std::to_string(index)));
  }

  fs::path log() const { return folder_ / kRun / "steps.jsonl"; }

  // Takes machine `index` away and waits until its agent has ended; the other
  // machine's agent must end with `exit_code`.
  ProgramResult taken_away(int index, Program& process, int exit_code) {
    const size_t before = read_lines(log()).size();
    const Clock::time_point begin = Clock::now();
    services_[index].take_away(kTime);
    ProgramResult result = process.join();
    const double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("notice after step %zu: drained after %.2f s\n", before,
                seconds);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_LT(seconds, kInTime);
    EXPECT_THAT(result.err,
                HasSubstr("spot notice: this machine is taken away at 12:34:56 "
                          "UTC: leaving the run at the next committed step"));
    return result;
  }

  fs::path folder_;
  std::string certs_, address_;
  FakeMetadata services_[2];
};

TEST_F(Spot, AfterOneMachineAndThenTheLastIsTakenTheRunContinuesElsewhere) {
  const auto server = coordinator();
  const auto first = agent(0);
  const auto second = agent(1);
  ASSERT_TRUE(wait_for_lines(log(), 4, 120));
  taken_away(1, *second, 0);
  const size_t left = read_lines(log()).size();
  ASSERT_TRUE(wait_for_lines(log(), left + 3, 60)) << "the other goes on alone";
  ASSERT_LT(read_lines(log()).size(), kSteps);
  const ProgramResult last = taken_away(0, *first, 130);
  EXPECT_EQ(server->join().exit_code, 130);
  EXPECT_THAT(last.err, HasSubstr("--resume"));

  std::vector<Json> drains = read_lines(folder_ / kRun / "events.jsonl");
  std::erase_if(drains,
                [](const Json& event) { return event.at("event") != "drain"; });
  ASSERT_EQ(drains.size(), 2u);
  for (const Json& event : drains) {
    EXPECT_THAT(event.at("reason").get<std::string>(),
                HasSubstr("spot notice: this machine is taken away at 12:34:56 "
                          "UTC"));
  }

  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   (folder_ / kRun).string(), "--processes", "2"},
                  folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::vector<Json> expected =
      train_in(folder_ / "undisturbed", flags(), {"--processes", "2"});
  const std::vector<Json> steps = read_lines(log());
  ASSERT_EQ(steps.size(), kSteps) << "every step once";
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples")) << i;
    EXPECT_LT(relative(expected[i], steps[i], "loss"), 1e-6) << i;
  }
  const ProgramResult ledger = run_program(
      {program("headroom"), "status", (folder_ / kRun).string(), "--ledger"},
      folder_);
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
}

}  // namespace
}  // namespace headroom::testing
