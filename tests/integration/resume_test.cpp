// A run that was stopped and resumed equals one that was never stopped: the
// remaining lines of steps.jsonl are identical bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

const std::vector<std::string> kDecided = {"loss", "box",       "obj",    "cls",
                                           "lr",   "grad_norm", "samples"};

class Resume : public ::testing::Test {
 protected:
  // With 37 images in batches of 8, an epoch has 5 steps, followed by a
  // validation.
  static ProgramResult train(const fs::path& folder,
                             const std::vector<std::string>& more) {
    fs::create_directories(folder);
    return run_program(train_shapes("8", joined({"--epochs", "2"}, more)),
                       folder);
  }
  static ProgramResult resume(const fs::path& folder,
                              const std::vector<std::string>& more) {
    return run_program(
        joined({program("headroom"), "train", "--resume", folder / kRun}, more),
        folder);
  }
  static std::vector<Json> steps(const fs::path& folder) {
    return read_lines(folder / kRun / "steps.jsonl");
  }
  static void expect_same_steps(const std::vector<Json>& a,
                                const std::vector<Json>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t step = 0; step < a.size(); ++step) {
      EXPECT_EQ(a[step].at("step"), step);
      for (const std::string& key : kDecided) {
        EXPECT_EQ(a[step].at(key).dump(), b[step].at(key).dump())
            << key << " of step " << step;
      }
    }
  }
  static constexpr const char* kRun = "runs/train/exp";
};

struct Layout {
  std::string name;
  std::vector<std::string> flags;
};

class ResumeLayout : public Resume,
                     public ::testing::WithParamInterface<Layout> {};

TEST_P(ResumeLayout, ContinuesBitForBit) {
  const fs::path folder = fresh_folder();
  const std::vector<std::string>& layout = GetParam().flags;
  const fs::path whole = folder / "whole", parts = folder / "parts";
  ASSERT_EQ(train(whole, layout).exit_code, 0);
  ASSERT_EQ(train(parts, joined(layout, {"--max-steps", "7"})).exit_code, 0);
  ASSERT_EQ(steps(parts).size(), 7u);
  const ProgramResult resumed = resume(parts, {"--max-steps", "0"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_steps(steps(whole), steps(parts));
  const Json a = read_json(whole / kRun / "summary.json");
  const Json b = read_json(parts / kRun / "summary.json");
  EXPECT_EQ(a.at("map50"), b.at("map50"));
  EXPECT_EQ(a.at("best_epoch"), b.at("best_epoch"));
}

const std::vector<std::string> kPipeline = {
    "--layout", "pipeline=2", "--bn-group", "4", "--micro-batch", "4"};

INSTANTIATE_TEST_SUITE_P(
    Quick, ResumeLayout,
    ::testing::Values(Layout{"bf16_pipeline2",
                             joined(kPipeline, {"--precision", "bf16"})},
                      Layout{"zero3", {"--layout", "data=2", "--zero", "3"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Slow, ResumeLayout,
    ::testing::Values(
        Layout{"one", {"--processes", "1"}},
        Layout{"data2", {"--processes", "2"}}, Layout{"pipeline2", kPipeline},
        Layout{"fp16_zero3",
               {"--layout", "data=2", "--zero", "3", "--precision", "fp16"}}),
    [](const auto& info) { return info.param.name; });

std::string replaced(std::string text, const std::string& what,
                     const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

void edit(const fs::path& file, const std::string& what,
          const std::string& with) {
  const std::string text = replaced(text_of(file), what, with);
  std::ofstream(file) << text;
}

// The time ends within an epoch, after one step. The run is validated then,
// although --noval is given.
TEST_F(Resume, ARunThatItsTimeEndsIsValidatedAndGoesOn) {
  const fs::path folder = fresh_folder();
  const fs::path whole = folder / "whole", parts = folder / "parts";
  const std::vector<std::string> two = {"--processes", "2", "--noval"};
  ASSERT_EQ(train(whole, two).exit_code, 0);
  const ProgramResult ended = train(parts, joined(two, {"--time", "0.0001"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("reached --time 0.0001 after step 1; "
                                   "continue with: headroom train --resume"));
  EXPECT_EQ(steps(parts).size(), 1u);
  EXPECT_TRUE(fs::exists(parts / kRun / "weights/best.safetensors"));
  EXPECT_TRUE(read_json(parts / kRun / "summary.json").contains("map50"));
  const auto rows = [](const fs::path& run) {
    std::ifstream file(run / kRun / "results.csv");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  };
  EXPECT_EQ(rows(parts).size(), 2u);
  const ProgramResult resumed = resume(parts, {"--time", "0"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_steps(steps(whole), steps(parts));
  EXPECT_EQ(rows(parts), rows(whole));
}

TEST_F(Resume, KeepsThePartOfTheImages) {
  const fs::path folder = fresh_folder();
  const ProgramResult half =
      train(folder, {"--fraction", "0.5", "--max-steps", "2"});
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.err, HasSubstr("--fraction 0.5 trains on 19 of 37 images, "
                                  "chosen by --seed 0"));
  EXPECT_EQ(steps(folder).front().at("epoch_samples"), 19);
  const ProgramResult other = resume(folder, {"--fraction", "1"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("fraction was 0.5 and cannot become 1"));
  const ProgramResult resumed = resume(folder, {"--max-steps", "0"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(steps(folder).size(), 6u);
  const ProgramResult ledger = run_program(
      {program("headroom"), "status", (folder / kRun).string(), "--ledger"},
      folder);
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
}

TEST_F(Resume, TheProgramForSamplesIsGivenAgain) {
  const fs::path folder = fresh_folder();
  fs::create_directories(folder);
  const fs::path script = folder / "augment.sh";
  std::ofstream(script) << "cat\n";
  const std::vector<std::string> flag = {"--augment-program",
                                         "sh " + script.string()};
  const ProgramResult first = train(folder, joined(flag, {"--max-steps", "2"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const fs::path run_yaml = folder / kRun / "run.yaml";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{program("headroom"), "train", "--config",
                                 run_yaml.string()},
        {program("headroom"), "train", "--resume", folder / kRun},
        {program("headroom-worker"), "--standalone", run_yaml.string(),
         "--resume"}}) {
    const ProgramResult refused = run_program(command, folder);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("no file starts a program"));
    EXPECT_THAT(refused.err, HasSubstr("give --augment-program 'sh "));
  }
  std::ofstream(script) << "echo wrong >&2; exit 3\n";
  const std::vector<std::string> more = joined(flag, {"--max-steps", "3"});
  const ProgramResult failed = resume(folder, more);
  EXPECT_EQ(failed.exit_code, 4);
  EXPECT_THAT(failed.err, HasSubstr("[augment] --augment-program 'sh "));
  EXPECT_THAT(failed.err,
              HasSubstr("ended: sh failed with code 3: wrong (sample "));
  EXPECT_EQ(steps(folder).size(), 2u);
  std::ofstream(script) << "cat\n";
  const ProgramResult resumed = resume(folder, more);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(steps(folder).size(), 3u);
}

struct ProgramFault {
  std::string name;
  std::string code;  // of the shell, run before each sample
  std::string reason;
  std::vector<std::string> flags;
};

class ResumeAfterProgram : public Resume,
                           public ::testing::WithParamInterface<ProgramFault> {
};

// The program fails within an epoch, so the newest checkpoint would be older.
TEST_P(ResumeAfterProgram, NoCommittedStepIsLost) {
  const fs::path folder = fresh_folder(), fails = folder / "fails";
  fs::create_directories(folder);
  const std::string line = "while read -r header; do\n";
  std::ofstream(folder / "augment.sh") << replaced(
      text_of(HEADROOM_SOURCE_DIR "/tests/support/augment.sh"), line,
      line + "[ ! -e " + fails.string() + " ] || " + GetParam().code + "\n");
  const std::string command = "sh " + (folder / "augment.sh").string();
  Program run(train_shapes("8", joined({"--epochs", "1000", "--noval",
                                        "--augment-program", command},
                                       GetParam().flags)),
              folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 3, 120));
  std::ofstream(fails) << "";
  const ProgramResult failed = run.join();
  EXPECT_EQ(failed.exit_code, 4) << failed.err;
  const std::string done = std::to_string(steps(folder).size());
  EXPECT_THAT(failed.err, HasSubstr("[augment] --augment-program '" + command +
                                    "' " + GetParam().reason));
  EXPECT_THAT(failed.err, HasSubstr("; the state after " + done +
                                    " steps is saved; continue with: "
                                    "headroom train --resume " +
                                    (folder / kRun).string() +
                                    " --augment-program '" + command + "'"));
  EXPECT_TRUE(fs::exists(folder / kRun / "checkpoints" / ("step-" + done) /
                         "MANIFEST.json"));
  fs::remove(fails);
  const int64_t all = std::stoll(done) + 2;
  const ProgramResult resumed = resume(
      folder,
      {"--augment-program", command, "--max-steps", std::to_string(all)});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(text_of(folder / kRun / "events.jsonl"),
              HasSubstr((folder / kRun / "checkpoints/step-").string() + done));
  const std::vector<Json> made = steps(folder);
  ASSERT_EQ(made.size(), static_cast<size_t>(all));
  for (size_t step = 0; step < made.size(); ++step) {
    EXPECT_EQ(made[step].at("step"), step);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Quick, ResumeAfterProgram,
    ::testing::Values(
        ProgramFault{"it_ends",
                     "{ echo wrong >&2; exit 3; }",
                     "ended: sh failed with code 3: wrong (sample ",
                     {"--layout", "data=2", "--zero", "3"}},
        ProgramFault{"it_prints",
                     "echo nonsense",
                     "wrote 'nonsense' instead of a sample's header (sample ",
                     {"--processes", "1"}}),
    [](const auto& info) { return info.param.name; });

TEST_F(Resume, KeepsTheMetricOfTheBestWeights) {
  const fs::path folder = fresh_folder();
  const ProgramResult first =
      train(folder, {"--best-metric", "recall", "--epochs", "1"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const ProgramResult resumed =
      resume(folder, {"--best-metric", "mAP", "--epochs", "2"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("best_metric stays recall"));
  EXPECT_THAT(text_of(folder / kRun / "run.yaml"),
              HasSubstr("best_metric: \"recall\""));
  const Json newest =
      read_json(folder / kRun / "checkpoints" / "step-10" / "MANIFEST.json");
  const Json summary = read_json(folder / kRun / "summary.json");
  EXPECT_EQ(newest.at("counters").at("best_fitness"), summary.at("recall"));
}

TEST_F(Resume, WeightsOfClassesAreSaidAndANameThatIsNoneIsRefused) {
  const fs::path folder = fresh_folder();
  const ProgramResult weighed =
      train(folder, {"--set", "hyp.cls_pw=balanced", "--max-steps", "1"});
  EXPECT_EQ(weighed.exit_code, 0) << weighed.err;
  EXPECT_THAT(weighed.err,
              HasSubstr("hyp.cls_pw balanced weighs positives: circle "));
  const ProgramResult unknown =
      train(folder, {"--set", "hyp.cls_pw=circel=2", "--max-steps", "1"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("the data set has no class 'circel': did "
                                     "you mean 'circle'?"));
}

// A run of an earlier version chose its group size itself, and only plan.json
// records it. The resumed run keeps this size, both with the recorded plan and
// with a new one.
TEST_F(Resume, GoesOnWithTheGroupsThatItBeganWith) {
  const fs::path folder = fresh_folder();
  const std::vector<std::string> groups = {"--processes", "1", "--bn-group",
                                           "3"};
  ASSERT_EQ(train(folder / "whole", groups).exit_code, 0);
  for (const auto& flags : std::vector<std::vector<std::string>>{
           {}, {"--zero", "0"}}) {  // zero=0 only makes a new plan
    const fs::path parts = folder / ("parts" + std::to_string(flags.size()));
    ASSERT_EQ(train(parts, joined(groups, {"--max-steps", "7"})).exit_code, 0);
    edit(parts / kRun / "run.yaml", "batch_norm_group_size: 3",
         "batch_norm_group_size: 0");
    edit(parts / kRun / "plan.json", "  \"even_batch_norm_groups\": false,\n",
         "");
    const ProgramResult resumed =
        resume(parts, joined(flags, {"--max-steps", "0"}));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_same_steps(steps(folder / "whole"), steps(parts));
    EXPECT_EQ(read_json(parts / kRun / "plan.json").at("batch_norm_group_size"),
              3);
  }
}

// The state is float32, whatever the precision of the maps is.
TEST_F(Resume, GoesOnInAnotherPrecision) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(train(folder, {"--max-steps", "2"}).exit_code, 0);
  int64_t committed = 2;
  for (const char* const precision : {"bf16", "fp16", "fp32"}) {
    SCOPED_TRACE(precision);
    committed += 2;
    const ProgramResult resumed = resume(
        folder,
        {"--precision", precision, "--max-steps", std::to_string(committed)});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    const std::vector<Json> all = steps(folder);
    ASSERT_EQ(all.size(), static_cast<size_t>(committed));
    EXPECT_EQ(all.back().contains("loss_scale"),
              std::string("fp16") == precision);
  }
  const std::vector<Json> all = steps(folder);
  EXPECT_EQ(all[4].at("loss_scale"), 65536);
  const ProgramResult refused = resume(folder, {"--precision", "fp64"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("precision was fp32 and cannot become fp64"));
}

TEST_F(Resume, UsesTheCheckpointBeforeADamagedOneAndCutsTheLog) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(
      train(folder, {"--max-steps", "9", "--set", "checkpoint_every_steps=3"})
          .exit_code,
      0);
  const std::vector<Json> before = steps(folder);
  const fs::path newest = folder / kRun / "checkpoints/step-9";
  ASSERT_TRUE(fs::exists(newest / "MANIFEST.json"));
  fs::resize_file(newest / "state.safetensors", 1000);

  const ProgramResult resumed = resume(folder, {"--max-steps", "9"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("state.safetensors has 1000 bytes"));
  expect_same_steps(before, steps(folder));
}

TEST_F(Resume, NothingUsableIsRefusedAndNothingChanges) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(train(folder, {"--max-steps", "2"}).exit_code, 0);
  fs::remove(folder / kRun / "checkpoints/step-2/MANIFEST.json");
  const ProgramResult resumed = resume(folder, {"--max-steps", "4"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("no usable checkpoint"));
  EXPECT_EQ(steps(folder).size(), 2u);
}

TEST_F(Resume, ResumingAFinishedRunReportsThatItIsFinished) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(train(folder, {"--epochs", "1", "--noval"}).exit_code, 0);
  const ProgramResult resumed = resume(folder, {});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_THAT(resumed.err,
              HasSubstr("has committed 5 steps and was asked for 5"));
}

// A user may edit the file that --cfg names.
TEST_F(Resume, AnEditedModelIsRefusedAndTheRecordedOneGoesOn) {
  const fs::path folder = fresh_folder();
  fs::create_directories(folder);
  const fs::path cfg = folder / "my.yaml";
  const std::string table =
      layers::model_table_text(layers::load_model_table("yolov5n"));
  std::ofstream(cfg) << table;
  ASSERT_EQ(train(folder, {"--cfg", cfg, "--max-steps", "2"}).exit_code, 0);
  EXPECT_EQ(text_of(folder / kRun / "model.yaml"), table);
  edit(cfg, "[-1, 6, C3, [256]]", "[-1, 6, C3, [256, False]]");
  const ProgramResult refused = resume(folder, {"--max-steps", "3"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("layer 4 was [-1, 6, C3, [256]] and is now [-1, 6, "
                        "C3, [256, False]]"));
  // A standalone worker uses the recorded model too.
  const ProgramResult alone =
      run_program({program("headroom-worker"), "--standalone",
                   (folder / kRun / "run.yaml").string(), "--resume"},
                  folder);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("is not the model that"));
  EXPECT_EQ(steps(folder).size(), 2u);
  const ProgramResult resumed = resume(
      folder,
      {"--max-steps", "3", "--cfg", (folder / kRun / "model.yaml").string()});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(steps(folder).size(), 3u);
}

TEST_F(Resume, AnotherDataSetIsReported) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(train(folder, {"--epochs", "4", "--max-steps", "6"}).exit_code, 0);
  const ProgramResult same = resume(folder, {"--max-steps", "7"});
  EXPECT_THAT(same.err, Not(HasSubstr("training image")));
  const fs::path images = fs::path(shapes_data()).parent_path() / "images";
  std::ofstream list(folder / "fewer.txt");
  int count = 0;
  for (const auto& image : fs::directory_iterator(images / "train")) {
    if (++count <= 20) list << image.path().string() << "\n";
  }
  list.close();
  std::string data = text_of(shapes_data());
  std::ofstream(folder / "fewer.yaml")
      << "train: fewer.txt\nval: " << (images / "val").string() << "\n"
      << data.substr(data.find("names:"));
  const ProgramResult fewer =
      resume(folder, {"--data", folder / "fewer.yaml", "--max-steps", "8"});
  EXPECT_EQ(fewer.exit_code, 0) << fewer.err;
  EXPECT_THAT(fewer.err,
              HasSubstr("the run had 37 training images and goes on with "
                        "20: an epoch is 3 steps now, and after 7 this is "
                        "epoch 3"));
}

}  // namespace
}  // namespace headroom::testing
