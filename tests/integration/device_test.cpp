// Training, validation and refusals from the command line on a device.
// HEADROOM_DEVICE_PLUGIN replaces the CUDA plugin by the test device
// (tests/support/test_device). With mosaic, warm-up, EMA and a short last
// batch, the run equals that on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kPlugin =
    std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so";

// Sets the device plugin of programs that start while this object exists.
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

struct Finished {
  std::vector<Json> steps, events;
  Json summary;
};
Finished finished(const std::string& name,
                  const std::vector<std::string>& flags) {
  const auto folder = fresh_folder() / name;
  std::vector<std::string> more = {"--max-steps", std::to_string(kSteps)};
  more.insert(more.end(), flags.begin(), flags.end());
  std::vector<Json> steps = train_in(folder, train_fp64("8"), more);
  const auto directory = folder / "runs/train/exp";
  return {std::move(steps), read_lines(directory / "events.jsonl"),
          read_json(directory / "summary.json")};
}

std::vector<std::string> reasons(const Finished& run, const std::string& kind) {
  std::vector<std::string> found;
  for (const Json& event : run.events)
    if (event.at("event") == kind) found.push_back(event.at("reason"));
  return found;
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

// The run has validations and checkpoints, for which graphs free memory, and a
// rank is killed.
TEST(Device, CapturedLayersTrainAsTheyAre) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device",   "0,1",       "--layout",
                                          "data=2",     "--backend", "gloo",
                                          "--bn-group", "4"};
  const std::vector<Json> plain = train("plain", flags);
  std::vector<std::string> graphs = flags;
  graphs.insert(graphs.end(),
                {"--cuda-graphs", "--set", "checkpoint_every_steps=4",
                 "--inject", "kill@rank=1,step=4,phase=forward"});
  const Finished run = finished("graphs", graphs);
  ASSERT_EQ(run.steps.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(run.steps[step].at("loss"), plain[step].at("loss")) << step;
  }
  EXPECT_FALSE(reasons(run, "cuda_graphs").empty());
}

// Tensors on the device are exchanged by the device's communicator, which
// allocates its memory before the first step.
TEST(Device, ItsOwnCommunicatorEqualsTheCpu) {
  const std::vector<Json> cpu = train("cpu", {"--processes", "1"});
  const PluginOf device(kPlugin);
  const Finished run =
      finished("device", {"--device", "0,1", "--layout", "data=2", "--zero",
                          "1", "--backend", "nccl"});
  ASSERT_EQ(run.steps.size(), kSteps);
  expect_equivalent(cpu, run.steps);
  for (const Json& rank : run.summary.at("device_memory")) {
    EXPECT_EQ(rank.at("context_bytes"), 3 << 20);
    EXPECT_GE(rank.at("communication_bytes"), 1 << 20);
    EXPECT_LT(rank.at("communication_bytes"), 2 << 20);
    EXPECT_EQ(rank.at("libraries_bytes"), 0);
  }
}

// Rendering samples on the device changes no bit of a run, and the memory for
// it is predicted.
void expect_rendered_as_on_the_cpu(std::vector<std::string> layout) {
  const PluginOf device(kPlugin);
  layout.insert(layout.end(), {"--backend", "gloo", "--noval", "--set",
                               "hyp.mixup=0.3", "--set", "hyp.gray=0.2"});
  layout.insert(layout.end(), {"--augment-on", "cpu"});
  const std::vector<Json> cpu = train("cpu", layout);
  layout.back() = "device";
  const std::vector<Json> run = train("device", layout);
  ASSERT_EQ(run.size(), kSteps);
  size_t predicted = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    for (const char* key : {"step", "loss", "grad_norm", "samples"}) {
      EXPECT_EQ(run[step].at(key), cpu[step].at(key)) << key << " " << step;
    }
    for (const Json& memory : run[step].at("memory")) {
      // Nothing is predicted if the step has a new shape, whose workspaces have
      // not been measured yet.
      if (memory.at("predicted_peak_bytes").is_null()) continue;
      ++predicted;
      const double ratio = memory.at("predicted_peak_bytes").get<double>() /
                           memory.at("measured_peak_bytes").get<double>();
      EXPECT_GE(ratio, 1.0) << step;
      EXPECT_LE(ratio, 1.05) << step;
    }
  }
  EXPECT_GE(predicted, 2u);
  for (size_t rank = 0; rank < measured_peaks(run).size(); ++rank) {
    EXPECT_GT(measured_peaks(run)[rank], measured_peaks(cpu)[rank]);
  }
}

TEST(Device, SamplesRenderedOnItChangeNoBit) {
  expect_rendered_as_on_the_cpu({"--device", "0"});
  expect_rendered_as_on_the_cpu({"--device", "0,1", "--layout", "data=2"});
}

TEST(Device, AResumedRunRendersTheSameSamples) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device", "0", "--noval",
                                          "--augment-on", "device"};
  const std::vector<Json> whole = train("whole", flags);
  const auto folder = fresh_folder() / "parts";
  std::vector<std::string> more = {"--max-steps", "2"};
  more.insert(more.end(), flags.begin(), flags.end());
  train_in(folder, train_fp64("8"), more);
  const auto run_folder = folder / "runs/train/exp";
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   run_folder.string(), "--max-steps", std::to_string(kSteps)},
                  folder);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::vector<Json> run = read_lines(run_folder / "steps.jsonl");
  ASSERT_EQ(run.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(run[step].at("loss"), whole[step].at("loss")) << step;
  }
}

// Cards that are known for NaN in float16: the run checks it first. `flags`
// follow those of train_fp64().
Finished on_gtx_16(const std::string& name,
                   const std::vector<std::string>& flags) {
  setenv("HEADROOM_TEST_CARD_NAME", "NVIDIA GeForce GTX 1660 Ti", 1);
  const Finished run = finished(
      name, joined({"--device", "0,1", "--layout", "data=2", "--backend",
                    "gloo", "--noval", "--precision", "auto"},
                   flags));
  unsetenv("HEADROOM_TEST_CARD_NAME");
  return run;
}

TEST(Device, Float16IsUsedIfItsCheckPasses) {
  const PluginOf device(kPlugin);
  const Finished run = on_gtx_16("run", {});
  EXPECT_THAT(
      reasons(run, "devices"),
      Contains(HasSubstr("precision: fp16 has passed its check: float16 "
                         "gives a loss of ")));
  ASSERT_EQ(run.steps.size(), kSteps);
  EXPECT_EQ(run.steps.front().at("generation"), 1);
  EXPECT_TRUE(run.steps.front().contains("loss_scale"));
}

TEST(Device, AFailedCheckOfFloat16TrainsInFloat32) {
  const PluginOf device(kPlugin);
  const Finished run =
      on_gtx_16("run", {"--inject", "nan@rank=1,step=0,phase=check"});
  EXPECT_THAT(reasons(run, "devices"),
              Contains("precision: fp32, as the check of fp16 failed on rank "
                       "1: a NaN was injected"));
  ASSERT_EQ(run.steps.size(), kSteps);
  EXPECT_EQ(run.steps.front().at("generation"), 2);
  EXPECT_FALSE(run.steps.front().contains("loss_scale"));
}

// The killed worker's successor gets the device and its peer's state, and
// repeats the lost step.
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

// The device's own allocator refuses memory: the step is retried, first
// unchanged, then with layers that keep less.
TEST(Device, AllocationsThatFailCostNoStep) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device", "0", "--activations",
                                          "keep"};
  const Finished calm = finished("calm", flags);
  std::vector<std::string> failing = flags;
  failing.insert(failing.end(),
                 {"--inject",
                  "oom@rank=0,step=1,allocation=40;"
                  "oom@rank=0,step=2,allocation=300;"
                  "oom@rank=0,step=2,allocation=3;"
                  "oom@rank=0,step=5,allocation=2,phase=validation;"
                  "oom@rank=0,step=3,allocation=1,phase=loader;"
                  "oom@rank=0,step=4,allocation=1,phase=vote;"
                  "oom@rank=0,step=4,allocation=1,phase=commit"});
  const Finished run = finished("failing", failing);
  ASSERT_EQ(run.steps.size(), kSteps);
  const std::vector<int64_t> attempts = {1, 2, 3, 1, 1};
  for (size_t step = 0; step < kSteps; ++step) {
    for (const char* key : {"loss", "grad_norm", "samples"})
      EXPECT_EQ(run.steps[step].at(key), calm.steps[step].at(key)) << step;
    EXPECT_EQ(run.steps[step].at("attempt"), attempts[step]) << step;
  }
  EXPECT_EQ(run.summary.at("map50"), calm.summary.at("map50"));
  // After the vote nothing is allocated, neither on the host nor on the device.
  const std::vector<std::string> faults = reasons(run, "fault");
  EXPECT_EQ(faults.size(), 7U);
  for (const std::string& fault : faults) {
    const bool is_late = fault.find("vote") != std::string::npos ||
                         fault.find("commit") != std::string::npos;
    EXPECT_EQ(fault.ends_with(": not reached, 0 allocations"), is_late)
        << fault;
  }
  const std::vector<std::string> failures = reasons(run, "out_of_memory");
  ASSERT_EQ(failures.size(), 5U);
  EXPECT_THAT(failures, Contains(HasSubstr("from now on layers are lean")));
}

// The memory in addition to tensors is the context and the unused parts of the
// allocator's segments. It is predicted once the workspaces of the first step's
// convolutions have been measured, but not for the short last batch of the
// epoch, which has other shapes.
TEST(Device, MemoryBesideTensorsIsReported) {
  const PluginOf device(kPlugin);
  const Finished run = finished("run", {"--device", "0,1", "--layout", "data=2",
                                        "--backend", "gloo", "--noval"});
  const Json& ranks = run.summary.at("device_memory");
  ASSERT_EQ(ranks.size(), 2U);
  for (const Json& rank : ranks) {
    EXPECT_EQ(rank.at("context_bytes"), 3 << 20);
    EXPECT_EQ(rank.at("context_is_measured"), true);
    EXPECT_EQ(rank.at("communication_bytes"), 0);
    EXPECT_EQ(rank.at("libraries_bytes"), 0);
    EXPECT_GT(rank.at("workspace_bytes"), 0);
    EXPECT_GT(rank.at("segment_bytes"), rank.at("tensor_bytes"));
    EXPECT_EQ(rank.at("needed_bytes").get<int64_t>(),
              rank.at("segment_bytes").get<int64_t>() + (3 << 20));
    EXPECT_EQ(rank.at("room_bytes"), int64_t{8} << 30);
  }
  const std::vector<std::string> said = reasons(run, "device_memory");
  ASSERT_EQ(said.size(), 2U);
  EXPECT_THAT(said.front(), HasSubstr("3 MiB of context"));
  EXPECT_THAT(said.back(), HasSubstr("a convolution's workspace"));
  for (size_t step = 0; step < kSteps; ++step) {
    for (const Json& rank : run.steps[step].at("memory")) {
      const Json& said_before = rank.at("predicted_peak_bytes");
      EXPECT_EQ(said_before.is_null(), step == 0 || step + 1 == kSteps);
      if (said_before.is_null()) continue;
      const auto predicted = said_before.get<double>();
      const auto measured = rank.at("measured_peak_bytes").get<double>();
      EXPECT_GE(predicted, measured) << step;
      EXPECT_LE(predicted, 1.05 * measured) << step;
    }
  }
}

// Memory that another process takes on a device is handled as on the CPU: the
// step is retried with less memory, and its result is the same.
TEST(Device, ABallastOnItIsHandledWithinTheLimit) {
  const PluginOf device(kPlugin);
  const std::vector<std::string> flags = {"--device", "0", "--noval",
                                          "--activations", "keep"};
  const std::vector<Json> calm = train("calm", flags);
  const int64_t context = 3 << 20;
  const int64_t limit = measured_peaks(calm).at(0) * 6 / 5 + context;
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
  EXPECT_LE(measured_peaks(run).at(0), limit - context);
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
  // Scores differ by the rounding of float32, so the order of a few boxes
  // changes.
  for (const char* key : {"recall", "map50", "map"}) {
    EXPECT_LT(relative(cpu, device, key), 1e-2) << key;
  }
}

// The tensors alone would fit, but not together with the allocator's segments
// and the context.
TEST(Device, APlanThatFitsOnlyWithoutTheContextIsRefused) {
  const PluginOf device(kPlugin);
  const auto refused = [&](const std::string& limit) {
    const ProgramResult result = run_program(
        train_shapes("8", {"--device", "0", "--noval", "--max-steps", "2",
                           "--memory-limit", limit}),
        fresh_folder());
    EXPECT_EQ(result.exit_code, 3) << result.err;
    return result.err;
  };
  const std::string by_the_planner = refused("1MiB");
  std::smatch bytes;
  ASSERT_TRUE(std::regex_search(by_the_planner, bytes,
                                std::regex("needs [^(]*\\(([0-9]+) bytes\\)")))
      << by_the_planner;
  const std::string by_the_worker = refused(bytes[1]);
  EXPECT_THAT(by_the_worker, HasSubstr("however lean it is: segments of"));
  EXPECT_THAT(by_the_worker, HasSubstr("3 MiB of context"));
  EXPECT_THAT(by_the_worker,
              HasSubstr("(" + bytes[1].str() + " bytes): use --memory-limit"));
}

struct Refused {
  std::string plugin;
  std::vector<std::string> flags;
  std::string words;
};

TEST(Device, ADeviceThatDoesNotExistIsRefused) {
  const std::vector<Refused> cases = {
      {kPlugin, {"--device", "9"}, "there is no card 9"},
      {kPlugin,
       {"--device", "gpu"},
       "write auto, cpu, all, or cards by number"},
      {kPlugin,
       {"--device", "0", "--processes", "2"},
       "--set share_devices=true"},
      {kPlugin,
       {"--device", "0,1", "--backend", "gloo", "--layout", "pipeline=2",
        "--cuda-graphs"},
       "captures layers that wait for nobody, but stages exchange maps"},
      {kPlugin, {"--augment-on", "device"}, "give --device 0"},
      {"/nowhere/plugin.so", {"--device", "0"}, "no plugin for devices"}};
  for (const Refused& refused : cases) {
    const PluginOf plugin(refused.plugin);
    const ProgramResult result =
        run_program(train_shapes("8", refused.flags), fresh_folder());
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(refused.words));
  }
}

// The device's float32 results differ from the CPU's in the last digits.
TEST(Device, DetectionsEqualTheCpus) {
  const auto folder = fresh_folder();
  train_in(folder, train_shapes("8", {}), {"--max-steps", "2", "--noval"});
  const auto boxes = [&](const std::string& device) {
    const ProgramResult result = run_program(
        {program("headroom"), "detect", "--weights",
         (folder / "runs/train/exp/weights/last.safetensors").string(),
         "--source",
         (std::filesystem::path(shapes_data()).parent_path() / "images/val")
             .string(),
         "--conf-thres", "0.0001", "--max-det", "5", "--save-json", "--nosave",
         "--device", device, "--name", "on_" + device},
        folder);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_json(folder / "runs/detect" / ("on_" + device) /
                     "predictions.json");
  };
  const Json expected = boxes("cpu");
  const PluginOf device(kPlugin);
  const Json found = boxes("0");
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_GT(found.size(), 0u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].at("score"), expected[i].at("score"), 1e-5) << i;
  }
}

}  // namespace
}  // namespace headroom::testing
