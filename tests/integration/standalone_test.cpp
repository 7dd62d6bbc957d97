// A standalone worker gives the same run as `headroom train --processes 1`, bit
// for bit, without a coordinator, an agent or a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Runs `headroom plan` with the flags of train_shapes(); its option --write
// writes the plan and run.yaml to the folder folder/asked.
void write_plan(const fs::path& folder, const std::vector<std::string>& more) {
  std::vector<std::string> command =
      train_shapes("8", joined(more, {"--write", folder / "asked"}));
  command[1] = "plan";
  const ProgramResult planned = run_program(command, folder);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
}

std::vector<std::string> standalone(const std::vector<std::string>& more) {
  // `headroom worker` runs the program headroom-worker.
  return joined({program("headroom"), "worker", "--standalone"}, more);
}

// Runs folder/asked/run.yaml with the run directory `run`; the worker must
// succeed.
ProgramResult run_alone(const fs::path& folder, const fs::path& run) {
  ProgramResult alone = run_program(
      standalone({folder / "asked/run.yaml", "--run-directory", run}), folder);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  return alone;
}

std::vector<std::string> events_of(const fs::path& run) {
  std::vector<std::string> names;
  for (const Json& line : read_lines(run / "events.jsonl")) {
    names.push_back(line.at("event"));
  }
  return names;
}

void expect_same_run(const fs::path& a, const fs::path& b) {
  const std::vector<Json> one = read_lines(a / "steps.jsonl");
  const std::vector<Json> other = read_lines(b / "steps.jsonl");
  ASSERT_EQ(one.size(), other.size());
  for (size_t step = 0; step < one.size(); ++step) {
    for (const char* key : {"step", "epoch", "loss", "box", "obj", "cls",
                            "grad_norm", "lr", "samples"}) {
      EXPECT_EQ(one[step].at(key).dump(), other[step].at(key).dump())
          << key << " of step " << step;
    }
  }
  for (const char* file : {"best.safetensors", "last.safetensors"}) {
    EXPECT_EQ(text_of(a / "weights" / file), text_of(b / "weights" / file))
        << file;
    EXPECT_FALSE(text_of(a / "weights" / file).empty()) << file;
  }
}

TEST(Standalone, IsTheSupervisedRunBitForBit) {
  const fs::path folder = fresh_folder();
  // With 37 images in batches of 8, an epoch has 5 steps, followed by a
  // validation.
  const std::vector<std::string> flags = {"--epochs", "2", "--processes", "1"};
  const ProgramResult supervised =
      run_program(train_shapes("8", flags), folder);
  ASSERT_EQ(supervised.exit_code, 0) << supervised.err;
  write_plan(folder, flags);

  const fs::path run = folder / "alone";
  const ProgramResult alone = run_alone(folder, run);
  expect_same_run(folder / "runs/train/exp", run);
  const Json said = Json::parse(alone.out);
  EXPECT_EQ(said.at("map50"),
            read_json(folder / "runs/train/exp/summary.json").at("map50"));
  EXPECT_EQ(said, read_json(run / "summary.json"));
  const std::vector<std::string> events = events_of(run);
  EXPECT_EQ(events.front(), "generation");
  EXPECT_EQ(events.back(), "run_over");
  EXPECT_THAT(events, ::testing::Contains("validation").Times(2));
}

// Also compares the planned bytes. They depend on the number of boxes in the
// images, which a run.yaml written by hand does not contain.
TEST(Standalone, WithoutAPlanFile_PlansAsHeadroomPlanDoes) {
  const fs::path folder = fresh_folder();
  const std::vector<std::string> flags = {
      "--epochs", "1", "--processes", "1", "--memory-limit", "900MiB"};
  const ProgramResult supervised =
      run_program(train_shapes("8", flags), folder);
  ASSERT_EQ(supervised.exit_code, 0) << supervised.err;
  write_plan(folder, flags);
  const Json planned = read_json(folder / "asked/plan.json");
  fs::remove(folder / "asked/plan.json");
  std::ifstream asked(folder / "asked/run.yaml");
  std::ofstream written(folder / "run.yaml");
  int left_out = 0;
  for (std::string line; std::getline(asked, line);) {
    const bool is_count = line.starts_with("label_counts:");
    left_out += is_count ? 1 : 0;
    if (!is_count) written << line << "\n";
  }
  written.close();
  EXPECT_EQ(left_out, 1);

  const fs::path run = folder / "alone";
  const ProgramResult alone = run_program(
      standalone({"run.yaml", "--run-directory", run.string()}), folder);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  expect_same_run(folder / "runs/train/exp", run);
  EXPECT_EQ(read_json(run / "plan.json"), planned);
}

TEST(Standalone, StopsAtACommittedStepAndGoesOn) {
  const fs::path folder = fresh_folder();
  write_plan(folder, {"--epochs", "2", "--processes", "1"});
  const fs::path whole = folder / "whole", parts = folder / "parts";
  run_alone(folder, whole);

  Program stopped(
      standalone({folder / "asked/run.yaml", "--run-directory", parts}),
      folder);
  ASSERT_TRUE(wait_for_lines(parts / "steps.jsonl", 1, 60));
  stopped.signal(SIGTERM);
  const ProgramResult end = stopped.join();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("continue with: headroom train --resume"));
  EXPECT_LT(read_lines(parts / "steps.jsonl").size(), 10u);
  EXPECT_EQ(read_lines(parts / "events.jsonl").back().at("state"), "finished");

  const ProgramResult resumed = run_program(
      standalone({(parts / "run.yaml").string(), "--resume"}), folder);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run(whole, parts);
}

// With a coordinator, another plan would be searched here.
TEST(Standalone, OutOfMemoryAtItsLeanestEndsAtACommittedStep) {
  const fs::path folder = fresh_folder();
  std::string faults;
  for (int rung = 0; rung < 12; ++rung) {
    faults += (rung == 0 ? "" : ";") + std::string("oom@rank=0,step=2,") +
              "allocation=" + std::to_string(60 + 40 * rung);
  }
  write_plan(folder, {"--max-steps", "5", "--processes", "1", "--noval",
                      "--inject", faults});
  const fs::path run = folder / "run";
  const ProgramResult ended =
      run_program(standalone({(folder / "asked/run.yaml").string(),
                              "--run-directory", run.string()}),
                  folder);
  EXPECT_EQ(ended.exit_code, 5) << ended.err;
  EXPECT_THAT(ended.err,
              HasSubstr("out of memory with the leanest activations after step "
                        "2; a worker on its own has one plan"));
  EXPECT_EQ(read_lines(run / "steps.jsonl").size(), 2u);
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-2"));

  const ProgramResult resumed = run_program(
      standalone({(run / "run.yaml").string(), "--resume"}), folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read_lines(run / "steps.jsonl").size(), 5u);
}

TEST(Standalone, JudgesWeights) {
  const fs::path folder = fresh_folder();
  write_plan(folder, {"--max-steps", "5", "--processes", "1"});
  const fs::path run = folder / "run";
  run_alone(folder, run);
  std::ofstream(folder / "val.yaml")
      << "command: val\nimage_height: 96\nimage_width: 96\ndata: "
      << shapes_data()
      << "\nweights: " << (run / "weights/last.safetensors").string() << "\n";
  const fs::path judged = folder / "judged";
  const ProgramResult val = run_program(
      standalone({"val.yaml", "--run-directory", judged.string()}), folder);
  ASSERT_EQ(val.exit_code, 0) << val.err;
  EXPECT_EQ(Json::parse(val.out), read_json(judged / "results.json"));
}

TEST(Standalone, RefusesUnsupportedRequests) {
  const fs::path folder = fresh_folder();
  const auto refused = [&](const std::vector<std::string>& words,
                           const std::string& why) {
    const ProgramResult result = run_program(standalone(words), folder);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_FALSE(fs::exists(folder / "new"));
  };
  refused({}, "required");
  refused({"none.yaml", "--run-directory", "new"}, "none.yaml");
  refused({"none.yaml", "--run-directory", "new", "--resume"}, "excludes");

  write_plan(folder, {"--max-steps", "1", "--processes", "2"});
  refused({"asked/run.yaml", "--run-directory", "new"},
          "is for 2 processes, not for 1");
  refused({"asked/run.yaml"}, "--run-directory");
  refused({"asked/run.yaml", "--run-directory", "asked"}, "is there already");
  refused({"asked/run.yaml", "--resume"}, "has no checkpoints");
  fs::remove(folder / "asked/plan.json");
  refused({"asked/run.yaml", "--run-directory", "new"},
          "run.yaml is for 2 processes, not for 1");
  refused({"asked/run.yaml", "--run-directory", "new", "--plan", "none.json"},
          "there is no plan none.json");
}

TEST(Standalone, APlanIsWrittenOnce) {
  const fs::path folder = fresh_folder();
  write_plan(folder, {"--max-steps", "1"});
  const std::string before = text_of(folder / "asked/run.yaml");
  std::vector<std::string> again = train_shapes("4", {"--write", "asked"});
  again[1] = "plan";
  const ProgramResult refused = run_program(again, folder);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("run.yaml is there already"));
  EXPECT_EQ(text_of(folder / "asked/run.yaml"), before);
}

}  // namespace
}  // namespace headroom::testing
