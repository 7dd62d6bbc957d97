// --image-weights: the samples that a run draws depend only on its seed and its
// validations. A resume, a lost process and the layout do not change them.
//
// The runs start from weights that detect the more frequent class better, so
// that validations change what the next epoch draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kRun = "runs/train/exp";
constexpr int64_t kStepsInEpoch = 5;  // 37 images in batches of 8
constexpr size_t kSteps = 3 * kStepsInEpoch;
constexpr size_t kUnlabelled = 36;  // the last training image

class ImageWeights : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new fs::path(fs::path(shapes_data()).parent_path().parent_path() /
                           "ImageWeights");
    fs::remove_all(*folder_);
    draw_data();
    const fs::path start = *folder_ / "start";
    fs::create_directories(start);
    const ProgramResult result = run_program(
        with_data(train_shapes(
            "8", {"--epochs", "12", "--noplots", "--optimizer", "Adam", "--set",
                  "hyp.lr0=0.003", "--set", "hyp.warmup_epochs=0", "--set",
                  "hyp.mosaic=0", "--set", "hyp.translate=0", "--set",
                  "hyp.scale=0"})),
        start);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    one_ = new std::vector<Json>(train("one", {"--processes", "1"}));
    ASSERT_EQ(one_->size(), kSteps);
  }
  static void TearDownTestSuite() {
    if (!HasFailure()) fs::remove_all(*folder_);
    delete one_;
    delete folder_;
  }

  // Copies the drawn images, but gives each one box in its middle, which is
  // learnt quickly. The rare class comes first; the last image has no box.
  static void draw_data() {
    fs::create_directories(*folder_);
    fs::copy(fs::path(shapes_data()).parent_path(), *folder_ / "data",
             fs::copy_options::recursive);
    for (const std::string split : {"train", "val"}) {
      std::set<fs::path> files;
      for (const auto& file :
           fs::directory_iterator(*folder_ / "data" / "labels" / split)) {
        files.insert(file.path());
      }
      size_t index = 0;
      for (const fs::path& file : files) {
        std::ofstream labels(file);
        if (split == "train" && index == kUnlabelled) continue;
        labels << (index < files.size() / 4 ? 1 : 0) << " 0.5 0.5 0.6 0.6\n";
        ++index;
      }
    }
  }
  static std::vector<std::string> with_data(std::vector<std::string> command) {
    std::replace(command.begin(), command.end(), shapes_data(),
                 (*folder_ / "data" / "data.yaml").string());
    return command;
  }
  static std::vector<std::string> command() {
    return with_data(train_shapes(
        "8",
        {"--weights",
         (*folder_ / "start" / kRun / "weights/best.safetensors").string(),
         "--precision", "fp64", "--image-weights", "--epochs", "3", "--set",
         "hyp.lr0=0.0001", "--set", "hyp.warmup_bias_lr=0", "--noplots"}));
  }
  static std::vector<Json> train(const std::string& name,
                                 const std::vector<std::string>& more) {
    return train_in(*folder_ / name, command(), more);
  }
  static ProgramResult resume(const std::string& name) {
    return run_program({program("headroom"), "train", "--resume",
                        (*folder_ / name / kRun).string(), "--max-steps", "0"},
                       *folder_ / name);
  }
  static std::vector<Json> steps(const std::string& name) {
    return read_lines(*folder_ / name / kRun / "steps.jsonl");
  }
  static ProgramResult ledger(const std::string& name) {
    return run_program({program("headroom"), "status",
                        (*folder_ / name / kRun).string(), "--ledger"},
                       *folder_ / name);
  }
  static std::set<int64_t> samples_of_epoch(const std::vector<Json>& steps,
                                            int64_t epoch) {
    std::set<int64_t> samples;
    for (const Json& step : steps) {
      if (step.at("epoch") != epoch) continue;
      for (const auto& sample : step.at("samples")) {
        samples.insert(sample.get<int64_t>());
      }
    }
    return samples;
  }
  static void expect_same_bits(const std::vector<Json>& a,
                               const std::vector<Json>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t step = 0; step < a.size(); ++step) {
      for (const char* key : {"step", "loss", "box", "obj", "cls", "grad_norm",
                              "samples", "lr"}) {
        EXPECT_EQ(a[step].at(key).dump(), b[step].at(key).dump())
            << key << " of step " << step;
      }
    }
  }

  static const fs::path* folder_;
  static const std::vector<Json>* one_;
};

const fs::path* ImageWeights::folder_ = nullptr;
const std::vector<Json>* ImageWeights::one_ = nullptr;

TEST_F(ImageWeights, SamplesMayRepeatAndTheLedgerReportsIt) {
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const size_t different = samples_of_epoch(*one_, epoch).size();
    EXPECT_LT(different, 37u) << "some came again";
    EXPECT_GT(different, 10u);
    EXPECT_FALSE(samples_of_epoch(*one_, epoch).contains(kUnlabelled));
  }
  const ProgramResult result = ledger("one");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("15 steps, 3 complete epochs of 37 samples"),
            std::string::npos)
      << result.out;
}

// Without validations, the run draws other samples from epoch 1 on.
TEST_F(ImageWeights, ValidationsChangeTheDraws) {
  const std::vector<Json> unjudged =
      train("noval", {"--processes", "1", "--noval"});
  ASSERT_EQ(unjudged.size(), kSteps);
  size_t others = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    const bool same =
        unjudged[step].at("samples") == one_->at(step).at("samples");
    if (step < kStepsInEpoch) {
      EXPECT_TRUE(same) << step;
    }
    others += same ? 0 : 1;
  }
  EXPECT_GE(others, 3u);
}

TEST_F(ImageWeights, AnyNumberOfProcessesDrawsTheSame) {
  expect_equivalent(*one_, train("two", {"--layout", "data=2"}));
  expect_equivalent(*one_,
                    train("four", {"--layout", "data=4", "--zero", "2"}));
}

// The run is stopped in the middle of an epoch, and at the end of one, with the
// figures of that epoch's validation.
TEST_F(ImageWeights, AResumedRunDrawsOn) {
  for (const std::string stop : {"5", "8", "10"}) {
    SCOPED_TRACE("after step " + stop);
    const std::string name = "stopped-" + stop;
    ASSERT_EQ(train(name, {"--processes", "1", "--max-steps", stop}).size(),
              std::stoul(stop));
    const ProgramResult resumed = resume(name);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_same_bits(*one_, steps(name));
    EXPECT_EQ(ledger(name).exit_code, 0);
  }
}

// One process is killed in the second epoch, another one between the end of
// that epoch and its validation. The layouts have the whole state on each rank,
// or only a shard of it.
TEST_F(ImageWeights, AKilledProcessChangesNoDraw) {
  const std::vector<std::vector<std::string>> layouts = {
      {"--layout", "data=2"}, {"--layout", "data=2", "--zero", "3"}};
  for (const std::vector<std::string>& layout : layouts) {
    const std::string name = "calm-" + std::to_string(layout.size());
    const std::vector<Json> calm = train(name, layout);
    for (const std::string fault : {"kill@rank=1,step=7,phase=forward",
                                    "kill@rank=0,step=10,phase=validation"}) {
      SCOPED_TRACE(fault);
      std::vector<std::string> more = layout;
      more.insert(more.end(), {"--inject", fault});
      const std::string run = name + (fault[10] == '1' ? "-one" : "-zero");
      const std::vector<Json> killed = train(run, more);
      expect_same_bits(calm, killed);
      EXPECT_EQ(killed.back().at("generation"), 2);
      EXPECT_EQ(ledger(run).exit_code, 0);
    }
  }
}

}  // namespace
}  // namespace headroom::testing
