// Training, validation and refusals from the command line on a device: the test
// device, which HEADROOM_DEVICE_PLUGIN puts in the place of the CUDA plugin
// (tests/support/test_device). Mosaic, warm-up, EMA and a short last batch are
// those of the CPU's run, which this one equals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

const std::string kPlugin =
    std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so";

// What programs that start meanwhile take their devices from.
class PluginOf {
 public:
  explicit PluginOf(const std::string& path) {
    setenv("HEADROOM_DEVICE_PLUGIN", path.c_str(), 1);
  }
  ~PluginOf() { unsetenv("HEADROOM_DEVICE_PLUGIN"); }
};

constexpr size_t kSteps = 5;

std::vector<Json> train(const std::string& name,
                        const std::vector<std::string>& flags) {
  std::vector<std::string> more = {"--max-steps", std::to_string(kSteps)};
  more.insert(more.end(), flags.begin(), flags.end());
  return train_in(fresh_folder() / name, train_fp64("8"), more);
}

void expect_as_on_the_cpu(const std::vector<std::string>& layout) {
  const std::vector<Json> cpu = train("cpu", {"--processes", "1"});
  std::vector<std::string> flags = {"--backend", "gloo"};
  flags.insert(flags.end(), layout.begin(), layout.end());
  const PluginOf device(kPlugin);
  const std::vector<Json> run = train("device", flags);
  ASSERT_EQ(run.size(), kSteps);
  expect_equivalent(cpu, run);
  for (const int64_t peak : measured_peaks(run)) EXPECT_GT(peak, 0);
}

TEST(Device, OneProcessEqualsTheCpu) {
  expect_as_on_the_cpu({"--device", "0"});
}

TEST(Device, ShardedProcessesEqualTheCpu) {
  expect_as_on_the_cpu(
      {"--device", "1,0", "--layout", "data=2", "--zero", "3"});
}

// Through validations and checkpoints, which graphs make room for, and a kill.
TEST(Device, CapturedRowsTrainAsTheyAre) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device",   "0,1",       "--layout",
                                          "data=2",     "--backend", "gloo",
                                          "--bn-group", "4"};
  const std::vector<Json> plain = train("plain", flags);
  std::vector<std::string> graphs = flags;
  graphs.insert(graphs.end(),
                {"--cuda-graphs", "--set", "checkpoint_every_steps=4",
                 "--inject", "kill@rank=1,step=4,phase=forward"});
  const std::vector<Json> run = train("graphs", graphs);
  ASSERT_EQ(run.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(run[step].at("loss"), plain[step].at("loss")) << step;
  }
}

// The successor gets a device, its peer's state and the step that was lost.
TEST(Device, AKilledProcessCostsNoStep) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> layout = {
      "--device", "0,1", "--layout", "data=2", "--backend", "gloo", "--noval"};
  const std::vector<Json> calm = train("calm", layout);
  std::vector<std::string> killed = layout;
  killed.insert(killed.end(),
                {"--inject", "kill@rank=1,step=3,phase=backward"});
  const std::vector<Json> run = train("killed", killed);
  ASSERT_EQ(calm.size(), kSteps);
  ASSERT_EQ(run.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    for (const char* key : {"step", "loss", "grad_norm", "samples"}) {
      EXPECT_EQ(run[step].at(key), calm[step].at(key)) << key << " " << step;
    }
  }
  EXPECT_EQ(run.front().at("generation"), 1);
  EXPECT_EQ(run.back().at("generation"), 2);
}

// What takes a device's memory away is met as on the CPU: the step is tried
// again with less, and comes out the same.
TEST(Device, ABallastOnItIsMetWithinTheLimit) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device", "0", "--noval",
                                          "--activations", "keep"};
  const std::vector<Json> calm = train("calm", flags);
  const int64_t limit = measured_peaks(calm).at(0) * 6 / 5;
  std::vector<std::string> full = flags;
  full.insert(full.end(),
              {"--memory-limit", std::to_string(limit), "--inject",
               "ballast@rank=0,step=2,bytes=" + std::to_string(limit / 4)});
  const std::vector<Json> run = train("ballast", full);
  ASSERT_EQ(run.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(run[step].at("loss"), calm[step].at("loss")) << step;
    EXPECT_EQ(run[step].at("attempt").get<int64_t>() > 1, step == 2) << step;
  }
  EXPECT_LE(measured_peaks(run).at(0), limit);
}

TEST(Device, ValidatesWeightsOfTheCpu) {
  const auto folder = fresh_folder();
  const ProgramResult trained =
      run_program(train_shapes("8", {"--epochs", "1", "--device", "cpu",
                                     "--processes", "1", "--max-steps", "5"}),
                  folder);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string weights =
      (folder / "runs/train/exp/weights/last.safetensors").string();
  const auto validate = [&](const std::string& device, const char* name) {
    const ProgramResult result =
        run_program({program("headroom"), "val", "--data", shapes_data(),
                     "--weights", weights, "--img", "96", "--batch", "8",
                     "--device", device, "--name", name, "--threads", "1"},
                    folder);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_json(folder / "runs/val" / name / "results.json");
  };
  const Json cpu = validate("cpu", "cpu");
  const PluginOf plugin(kPlugin);
  const Json device = validate("0", "device");
  for (const char* key : {"val_images", "val_labels"}) {
    EXPECT_EQ(device.at(key), cpu.at(key)) << key;
  }
  EXPECT_GT(cpu.at("map50"), 0);
  // Scores differ by float32's rounding, so that a few boxes change places.
  for (const char* key : {"recall", "map50", "map"}) {
    EXPECT_LT(relative(cpu, device, key), 1e-2) << key;
  }
}

struct Refused {
  std::string plugin;
  std::vector<std::string> flags;
  std::string words;
};

TEST(Device, WhatIsNotThereIsRefused) {
  const std::vector<Refused> cases = {
      {kPlugin, {"--device", "9"}, "there is no device 9"},
      {kPlugin, {"--device", "gpu"}, "write cpu, or cards by number"},
      {kPlugin,
       {"--device", "0", "--processes", "2"},
       "--set share_devices=true"},
      {kPlugin,
       {"--device", "0,1", "--backend", "nccl"},
       "the test device has no communicator"},
      {kPlugin,
       {"--device", "0,1", "--backend", "gloo", "--layout", "pipeline=2",
        "--cuda-graphs"},
       "captures rows that wait for nobody, but stages exchange maps"},
      {"/nowhere/plugin.so", {"--device", "0"}, "no plugin for devices"}};
  for (const Refused& refused : cases) {
    const PluginOf plugin(refused.plugin);
    const ProgramResult result =
        run_program(train_shapes("8", refused.flags), fresh_folder());
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(refused.words));
  }
}

}  // namespace
}  // namespace headroom::testing
