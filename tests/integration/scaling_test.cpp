// Agents join and leave while a run trains. The run continues with the agents
// that are present, and its losses remain those of two processes.
//
// The hyper-parameters are calm, because training is chaotic and rounding
// errors grow.
//
// The suite named Slow runs with the label `slow`.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> calm_command(int steps) {
  std::vector<std::string> words = train_fp64("8");
  const auto size = std::find(words.begin(), words.end(), "--img");
  *std::next(size) = "64";
  for (const char* calm : {"lr0=1e-5", "lrf=1", "warmup_epochs=0"}) {
    words.insert(words.end(), {"--set", std::string("hyp.") + calm});
  }
  words.insert(words.end(), {"--max-steps", std::to_string(steps)});
  return words;
}

// Starts a coordinator and agents separately: first two agents with one worker
// each, after `grow` steps two more. After `shrink` steps all agents but one
// are asked to leave, among them the agent of rank 0.
void scale(int steps, size_t grow, size_t shrink) {
  const fs::path folder = fresh_folder();
  const std::vector<Json> expected = train_in(
      folder / "undisturbed", calm_command(steps), {"--processes", "2"});
  ASSERT_EQ(expected.size(), static_cast<size_t>(steps));

  std::vector<std::string> words = calm_command(steps);
  words[1] = "coordinator";
  words.insert(words.end(), {"--expected-workers", "2"});
  Program coordinator(words, folder);
  const auto said = [&] { return text_of(folder / "stderr.txt"); };
  const std::string listening = "listening on ";
  ASSERT_TRUE(wait_until(
      [&] { return said().find(listening) != std::string::npos; }, 30))
      << said();
  const std::string text = said();
  const size_t begin = text.find(listening) + listening.size();
  const std::string address =
      text.substr(begin, text.find('\n', begin) - begin);
  std::array<std::unique_ptr<Program>, 4> agents;
  const auto start = [&](size_t agent) {
    const fs::path place = folder / ("agent" + std::to_string(agent));
    fs::create_directories(place);
    agents[agent] = std::make_unique<Program>(
        std::vector<std::string>{program("headroom"), "agent", "--coordinator",
                                 address},
        place);
  };
  const auto wait_for_steps = [&](size_t count) {
    return wait_until([&] { return steps_so_far(folder).size() >= count; },
                      300);
  };
  start(0);
  start(1);
  ASSERT_TRUE(wait_for_steps(grow)) << said();
  start(2);
  start(3);
  const auto ranks = [&] {
    const std::vector<Json> now = steps_so_far(folder);
    return now.empty() ? 0 : now.back().at("memory").size();
  };
  ASSERT_TRUE(wait_until([&] { return ranks() == 4; }, 60)) << said();
  ASSERT_TRUE(wait_for_steps(shrink)) << said();
  for (const size_t leaver : {0, 2, 3}) agents[leaver]->signal(SIGTERM);
  ASSERT_TRUE(wait_until([&] { return ranks() == 1; }, 60)) << said();
  for (const size_t leaver : {0, 2, 3}) {
    EXPECT_EQ(agents[leaver]->join().exit_code, 0) << leaver;
  }
  EXPECT_EQ(coordinator.join().exit_code, 0) << said();
  EXPECT_EQ(agents[1]->join().exit_code, 0);

  const std::vector<Json> lines = steps_so_far(folder);
  ASSERT_EQ(lines.size(), expected.size());
  double worst = 0;
  std::string worlds;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i);
    EXPECT_EQ(lines[i].at("samples"), expected[i].at("samples")) << i;
    const double off = relative(lines[i], expected[i], "loss");
    EXPECT_LT(off, i < 5 ? 1e-9 : 1e-6) << i;
    EXPECT_LT(relative(lines[i], expected[i], "grad_norm"), 1e-6) << i;
    worst = std::max(worst, off);
    const std::string world = std::to_string(lines[i].at("memory").size());
    if (!worlds.ends_with(world)) worlds += (i == 0 ? "" : " -> ") + world;
  }
  EXPECT_TRUE(worlds.starts_with("2 -> ")) << worlds;
  EXPECT_TRUE(worlds.ends_with(" -> 1")) << worlds;
  // No process counts as lost, since all joined and left at a committed step.
  EXPECT_TRUE(events_named(folder, "loss_of_process").empty());
  expect_exact_ledger(folder);
  std::printf("processes %s, losses within %.0e through %d steps\n",
              worlds.c_str(), worst, steps);
}

TEST(Scaling, FromTwoToFourToOneAndTheLossesStay) { scale(24, 4, 14); }

TEST(Slow, FromTwoToFourToOneThroughManySteps) { scale(150, 40, 100); }

}  // namespace
}  // namespace headroom::testing
