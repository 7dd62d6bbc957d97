// Tests machines that share no folder: on each of two nodes the same path is a
// folder of its own. Where results are, what every program says about that, and
// what --resume does on either machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "coordinator/service/certificates.h"
#include "tests/integration/run_comparison.h"
#include "tests/integration/two_nodes.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class MachinesApart : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    if (const std::string why = TwoNodes::unavailable_error(folder_);
        !why.empty()) {
      GTEST_SKIP() << why;
    }
    fs::current_path(folder_);
    nodes_.emplace(folder_);
    coordinator::make_certificates(
        folder_ / "certs", {TwoNodes::address(0), TwoNodes::address(1)});
    fs::create_directories(shared());
    for (int node = 0; node < 2; ++node) {
      fs::create_directories(disk(node));
      EXPECT_EQ(tool(node, "mount --bind " + disk(node).string() + " " +
                               shared().string())
                    .exit_code,
                0);
    }
  }

  // The path that is a folder of its own on each node, and that folder.
  fs::path shared() const { return folder_ / "machine"; }
  fs::path disk(int node) const {
    return folder_ / ("disk-" + std::to_string(node));
  }
  std::string run(const std::string& name = "exp") const {
    return (shared() / "runs/train" / name).string();
  }
  fs::path run_on(int node, const std::string& name = "exp") const {
    return disk(node) / "runs/train" / name;
  }

  std::vector<std::string> there(int node,
                                 const std::vector<std::string>& words) const {
    std::vector<std::string> command = {
        "sh", "-c", "cd " + shared().string() + " && exec \"$@\"", "sh"};
    command.insert(command.end(), words.begin(), words.end());
    return nodes_->on(node, command);
  }
  ProgramResult tool(int node, const std::string& script) {
    return run_program(there(node, {"sh", "-c", script}), output("tool"));
  }
  ProgramResult headroom(int node, const std::string& line) {
    return run_program(there(node, headroom_command(line)), output("headroom"));
  }
  std::unique_ptr<Program> begin(int node, const std::string& name,
                                 const std::vector<std::string>& words) {
    return std::make_unique<Program>(there(node, words), output(name));
  }
  fs::path output(const std::string& name) const {
    fs::create_directories(folder_ / name);
    return folder_ / name;
  }

  static std::vector<std::string> training() {
    return joined(train_fp64("8"), {"--noplots"});
  }
  std::vector<std::string> words_of_coordinator(
      const std::vector<std::string>& more, int workers) const {
    std::vector<std::string> words = joined(training(), more);
    words[1] = "coordinator";
    return joined(
        words, {"--listen", TwoNodes::address(0) + ":29500", "--certs", certs(),
                "--expected-workers", std::to_string(workers)});
  }
  std::unique_ptr<Program> agent(int node) {
    return begin(node, "agent-" + std::to_string(node),
                 {program("headroom"), "agent", "--coordinator",
                  TwoNodes::address(0) + ":29500", "--certs", certs()});
  }
  std::string certs() const { return (folder_ / "certs").string(); }

  static std::vector<int64_t> steps_in(const fs::path& run) {
    std::vector<int64_t> steps;
    for (const Json& line : read_lines(run / "steps.jsonl")) {
      steps.push_back(line.at("step").get<int64_t>());
    }
    return steps;
  }

  static bool wait_for_checkpoint(const fs::path& run) {
    std::error_code ignored;
    for (int attempt = 0; attempt < 1200; ++attempt) {
      for (const auto& folder :
           fs::directory_iterator(run / "checkpoints", ignored)) {
        if (fs::exists(folder.path() / "MANIFEST.json", ignored)) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  fs::path folder_;
  std::optional<TwoNodes> nodes_;
};

const std::vector<std::string> kCalm = {"--set", "hyp.lr0=1e-5",
                                        "--set", "hyp.lrf=1",
                                        "--set", "hyp.warmup_epochs=0"};

std::vector<int64_t> first_steps(int64_t count) {
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < count; ++step) steps.push_back(step);
  return steps;
}

TEST_F(MachinesApart, ResultsOnTheAgentsMachineAreNamedEverywhere) {
  const auto coordinator =
      begin(0, "coordinator", words_of_coordinator({"--max-steps", "3"}, 1));
  const auto worker = agent(1);
  const ProgramResult told = coordinator->join();
  const ProgramResult there = worker->join();
  ASSERT_EQ(told.exit_code, 0) << told.err;
  ASSERT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(steps_in(run_on(1)), first_steps(3));
  const std::string where =
      "the newest state of " + run() +
      ", after 3 steps, is on node-1, not on this machine";
  const std::string how = "rsync -a node-1:" + run() + "/ " + run() + "/";
  EXPECT_THAT(told.err, HasSubstr("coordinator: " + where));
  EXPECT_THAT(told.err, HasSubstr(how));
  EXPECT_THAT(there.out + there.err, HasSubstr("results in " + run()));
  // The coordinator's machine has the events, and knows where the rest is.
  EXPECT_FALSE(read_lines(run_on(0) / "events.jsonl").empty());
  for (const char* line : {"train --resume ", "status "}) {
    const ProgramResult refused = headroom(0, line + run());
    EXPECT_EQ(refused.exit_code, 2) << line;
    EXPECT_THAT(refused.err, HasSubstr(where)) << line;
    EXPECT_THAT(refused.err, HasSubstr(how)) << line;
  }
  EXPECT_THAT(headroom(0, "train --resume").err, HasSubstr(where));
  // Fetched as the line says, the run goes on.
  fs::copy(run_on(1), run_on(0),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const ProgramResult goes_on =
      headroom(0, "train --max-steps 4 --resume " + run());
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
  EXPECT_EQ(steps_in(run_on(0)), first_steps(4));
}

TEST_F(MachinesApart, ASecondRunHasAnotherName) {
  for (const char* name : {"exp", "exp2"}) {
    const auto coordinator =
        begin(0, "coordinator", words_of_coordinator({"--max-steps", "1"}, 1));
    const auto worker = agent(1);
    const ProgramResult told = coordinator->join();
    ASSERT_EQ(told.exit_code, 0) << told.err;
    EXPECT_EQ(worker->join().exit_code, 0);
    EXPECT_EQ(steps_in(run_on(1, name)), first_steps(1));
  }
}

TEST_F(MachinesApart, ResultsAreOnTheCoordinatorsMachineIfAnAgentIsThere) {
  // Without the coordinator the machines come in the order of their names.
  EXPECT_EQ(tool(0, "hostname zeta").exit_code, 0);
  const auto coordinator =
      begin(0, "coordinator", words_of_coordinator({"--max-steps", "3"}, 2));
  const auto own = agent(0);
  const auto other = agent(1);
  const ProgramResult told = coordinator->join();
  ASSERT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.err, HasSubstr("coordinator: results in " + run()));
  EXPECT_EQ(own->join().exit_code, 0);
  const ProgramResult there = other->join();
  EXPECT_THAT(there.out + there.err, HasSubstr("after 3 steps, is on zeta"));
  EXPECT_EQ(steps_in(run_on(0)), first_steps(3));
  EXPECT_FALSE(fs::exists(run_on(1) / "steps.jsonl"));
  // Both machines take part again in the resumed run.
  const auto again = begin(
      0, "coordinator",
      {program("headroom"), "coordinator", "--resume", run(), "--max-steps",
       "5", "--listen", TwoNodes::address(0) + ":29500", "--certs", certs()});
  const auto first = agent(0);
  const auto second = agent(1);
  const ProgramResult ended = again->join();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(first->join().exit_code, 0);
  EXPECT_EQ(second->join().exit_code, 0);
  EXPECT_EQ(steps_in(run_on(0)), first_steps(5));
  EXPECT_EQ(read_lines(run_on(0) / "steps.jsonl")[4].at("memory").size(), 2u);
}

// Node 1 has a run of its own under the same path, which is kept.
TEST_F(MachinesApart, RankZeroMovesToAnotherMachineAfterALoss) {
  const ProgramResult earlier = run_program(
      there(1, joined(training(), {"--max-steps", "9"})), output("own"));
  ASSERT_EQ(earlier.exit_code, 0) << earlier.err;
  const std::string own = text_of(run_on(1) / "steps.jsonl");

  const auto coordinator =
      begin(0, "coordinator",
            words_of_coordinator(joined(kCalm, {"--max-steps", "60", "--set",
                                                "checkpoint_every_steps=2"}),
                                 2));
  const auto lost = agent(0);
  const auto stays = agent(1);
  ASSERT_TRUE(wait_for_lines(run_on(0) / "steps.jsonl", 5, 120));
  ASSERT_TRUE(wait_for_checkpoint(run_on(0)));
  for (const char* name : {"agent", "headroom-worker"}) {
    for (const pid_t pid : descendants(lost->pid(), name)) kill(pid, SIGKILL);
  }
  const ProgramResult told = coordinator->join();
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const ProgramResult there = stays->join();
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_THAT(there.out + there.err, HasSubstr("results in " + run()));
  const std::string where = "after 60 steps, is on node-1";
  EXPECT_THAT(told.err, HasSubstr(where));

  // Together both machines have every step once.
  std::vector<int64_t> steps = steps_in(run_on(0));
  const std::vector<int64_t> later = steps_in(run_on(1));
  ASSERT_FALSE(later.empty());
  const std::string said = text_of(run_on(0) / "events.jsonl");
  EXPECT_THAT(said, HasSubstr("rank 0 is on node-1 now, which does not share "
                              "the run's folder with node-0: from step " +
                              std::to_string(later.front() + 1) + " on"));
  std::erase_if(steps, [&](int64_t step) { return step >= later.front(); });
  steps.insert(steps.end(), later.begin(), later.end());
  EXPECT_EQ(steps, first_steps(60));

  const std::string aside = run() + ".before";
  EXPECT_THAT(said, HasSubstr("is of another run: it is called " + aside));
  EXPECT_EQ(text_of(run_on(1, "exp.before") / "steps.jsonl"), own);

  // The older state is not resumed by mistake.
  const ProgramResult refused = headroom(0, "train --resume " + run());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr(where));
  EXPECT_THAT(refused.err, HasSubstr("to go on from the older state here, "));
  EXPECT_THAT(refused.err, HasSubstr("remove " + run() + "/.elsewhere"));
  const ProgramResult goes_on =
      headroom(1, "train --processes 1 --max-steps 62 --resume " + run());
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
  EXPECT_EQ(steps_in(run_on(1)).back(), 61);

  // The run went on elsewhere; brought here as the refusal says, it goes on
  // here without the removal of a note.
  fs::copy(run_on(1), run_on(0),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  ASSERT_TRUE(fs::exists(run_on(0) / ".elsewhere"));
  const ProgramResult back =
      headroom(0, "train --processes 1 --max-steps 64 --resume " + run());
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(steps_in(run_on(0)).back(), 63);
}

class Slow : public MachinesApart {};

TEST_F(Slow, TheMachineOfRankZeroAndOfTheCoordinatorIsLost) {
  const auto coordinator =
      begin(0, "coordinator",
            words_of_coordinator(joined(kCalm, {"--max-steps", "100000"}), 2));
  const auto lost = agent(0);
  const auto stays = agent(1);
  ASSERT_TRUE(wait_for_lines(run_on(0) / "steps.jsonl", 4, 120));
  for (const Program* program : {lost.get(), coordinator.get()}) {
    for (const char* name : {"headroom-worker", "headroom"}) {
      for (const pid_t pid : descendants(program->pid(), name)) {
        kill(pid, SIGKILL);
      }
    }
  }
  const ProgramResult there = stays->join();
  EXPECT_EQ(there.exit_code, 5);
  EXPECT_THAT(there.out + there.err,
              HasSubstr(" is saved on node-1; continue with: headroom train "
                        "--resume " +
                        run()));
  const ProgramResult goes_on =
      headroom(1, "train --processes 1 --max-steps 8 --resume " + run());
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
  EXPECT_EQ(steps_in(run_on(1)).back(), 7);
}

}  // namespace
}  // namespace headroom::testing
