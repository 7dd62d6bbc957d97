// Bad input gives one clear line and the right exit code, and leaves no files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Case {
  std::string name;
  std::vector<std::string> flags;
  int exit_code;
  std::vector<std::string> said;  // expected parts of the message
  std::function<void(const fs::path&)> prepare = [](const fs::path&) {};
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Makes a copy of the drawn data set whose files a case may damage.
void copy_shapes(const fs::path& folder) {
  fs::copy(fs::path(shapes_data()).parent_path(), folder / "data",
           fs::copy_options::recursive);
}

class Refusal : public ::testing::TestWithParam<Case> {};

TEST_P(Refusal, IsOneClearLine) {
  const Case& c = GetParam();
  const fs::path folder = fresh_folder();
  c.prepare(folder);
  const ProgramResult result =
      run_program(joined({program("headroom"), "train"}, c.flags), folder);
  EXPECT_EQ(result.exit_code, c.exit_code) << result.err;
  for (const std::string& words : c.said) {
    EXPECT_THAT(result.err, HasSubstr(words)) << words << "\nin\n"
                                              << result.err;
  }
  EXPECT_EQ(result.out, "");
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 6)
      << result.err;
  EXPECT_FALSE(fs::exists(folder / "runs")) << "something was left behind";
  EXPECT_LT(result.seconds, 20);
}

// Faults of the request that a run finds only after its start. Those of single
// flags and keys are tested in tests/configs and tests/deploy/cli.
std::vector<Case> cases() {
  const auto on = [](const std::string& data, std::vector<std::string> more) {
    return joined({"--cfg", "yolov5n", "--img", "64", "--batch", "4",
                   "--epochs", "1", "--data", data},
                  more);
  };
  const auto with = [&](const std::vector<std::string>& more) {
    return on(shapes_data(), more);
  };
  const std::vector<std::string> damaged = on("data/data.yaml", {});
  // Makes a copy of the drawn data set with another data.yaml.
  const auto yaml = [](const std::string& text) {
    return [text](const fs::path& f) {
      copy_shapes(f);
      write(f / "data/data.yaml", text);
    };
  };
  return {
      {"NoSuchDataFile", {"--data", "nothing.yaml"}, 2, {"nothing.yaml"}},
      {"TabInYaml",
       damaged,
       2,
       {"data.yaml:2:", "tab"},
       yaml("path: .\n\ttrain: x\n")},
      {"UnknownKeyInYaml",
       damaged,
       2,
       {"data.yaml:2:1", "trian", "train"},
       yaml("path: .\ntrian: x\nval: x\nnames: [a]\n")},
      {"WrongTypeInYaml",
       damaged,
       2,
       {"data.yaml:", "names"},
       yaml("train: images/train\nval: images/val\nnames: 3\n")},
      {"NamesShorterThanClasses",
       damaged,
       4,
       {"labels/train/", ".txt:", "names"},
       yaml("train: images/train\nval: images/val\nnames: [one]\n")},
      {"EmptyDataSet",
       damaged,
       4,
       {"has no image"},
       [](const fs::path& f) {
         copy_shapes(f);
         fs::remove_all(f / "data/images/train");
         fs::create_directories(f / "data/images/train");
       }},
      {"OutlinesAreNotCut",
       on(outlined_shapes_data(),
          {"--random-crop", "--set", "hyp.copy_paste=0.5"}),
       2,
       {"--random-crop cuts boxes, but not the outlines of",
        "hyp.copy_paste 0.5", "add --set hyp.copy_paste=0"}},
      {"MoreTilesThanBlocksOfRows",
       with({"--layout", "spatial=8"}),
       2,
       {"[plan] --layout spatial=8", "8 ranks > 64 rows / 32 = 2 blocks",
        "use spatial=2 or less, or --img 256 or more"}},
      {"GroupsBrokenByMicroBatches",
       with({"--batch", "8", "--layout", "data=1", "--micro-batch", "3",
             "--bn-group", "4"}),
       2,
       {"[plan] micro_batch_size 3", "batch_norm_group_size 4",
        "8 (8 images / 1 rank)", "use --micro-batch 4"}},
      {"DataAxisAboveBatch",
       with({"--layout", "data=5"}),
       2,
       {"[plan]", "(--batch) 4 < data axis 5", "use --batch 5 or more"}},
      {"UnknownSetKey", with({"--set", "hyp.lr=1"}), 2, {"hyp.lr", "lr0"}},
      {"CudaDevice", with({"--device", "0"}), 2, {"CUDA"}},
      {"ForeignWeights",
       with({"--weights", "w.safetensors"}),
       2,
       {"w.safetensors"},
       [](const fs::path& f) {
         write(f / "w.safetensors", "this is no safetensors file");
       }},
      {"ReadOnlyProject",
       with({"--project", "/proc/headroom"}),
       2,
       {"/proc/headroom"}},
      {"ResumeOfNothing", {"--resume", "runs/nothing"}, 2, {"runs/nothing"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Train, Refusal, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Faults in commands that headroom-worker runs.
TEST(Tools, NameTheFaultInOneLine) {
  const std::string data = shapes_data();
  const fs::path folder = fresh_folder();
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  write(folder / "names.yaml",
        "path: " + fs::path(data).parent_path().string() +
            "\ntrain: images/train\nval: images/val\nnames: [caf\xe9]\n");
  struct Row {
    std::string words;
    int exit_code;
    std::string line;
  };
  for (const Row& row : std::vector<Row>{
           {"verify --data " + data + " --fix-to '' --json", 2,
            "--fix-to has an empty value: give one, or leave --fix-to out"},
           {"verify --data " + data + " --fix-to " +
                (fs::path(data).parent_path() / "images/train/fixed").string(),
            2, "whose images the data set reads: name a folder outside it"},
           {"verify --data " + data + " --json >/dev/full", 5,
            "standard output cannot be written"},
           {"verify --data names.yaml", 2, "the name of class 0 is not UTF-8"},
           {"detect --weights w.pt --source . --conf-thres nan", 2,
            "nan is not from 0 to 1"},
           {"tile --data " + data + " --output t --overlap nan", 2,
            "nan is not from 0 to"},
           {"detect --weights pipe --source .", 2, "is no regular file"},
           {"plan --weights pipe", 2, "is no regular file"},
           {"detect --source .", 2, "--weights is required"}}) {
    const ProgramResult result = run_program(
        {"sh", "-c", "exec '" + program("headroom") + "' " + row.words},
        folder);
    EXPECT_EQ(result.exit_code, row.exit_code) << row.words << result.err;
    EXPECT_THAT(result.err, HasSubstr(row.line)) << row.words << "\n"
                                                 << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
  EXPECT_FALSE(fs::exists(folder / "--json"));
  EXPECT_FALSE(fs::exists(folder / "t"));
}

// Box labels have no outlines that the window would have to cut.
TEST(RandomCrop, TakesAHypThatPastesWhereNoLabelIsAPolygon) {
  const ProgramResult result = run_program(
      train_shapes("4", {"--processes", "1", "--max-steps", "1", "--noval",
                         "--random-crop", "--hyp", "scratch-high"}),
      fresh_folder());
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// The system already refuses threads and memory to the process that starts the
// others.
TEST(Resources, ASystemThatRefusesThreadsOrMemoryIsNamed) {
  const fs::path folder = fresh_folder();
  // Limits of the address space in KiB: with each, another thread is the first
  // to be refused.
  for (const char* limit : {"86000", "90000", "94000", "100000"}) {
    const ProgramResult result = run_program(
        {"sh", "-c",
         "ulimit -v " + std::string(limit) + "; exec '" + program("headroom") +
             "' train --synthetic-input --cfg yolov5n --img 64 --max-steps 1"},
        folder);
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_THAT(result.err, HasSubstr("ulimit"));
    EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  }
}

TEST(Faults, ATooShortDataSetIsRepairedNamedAndTrainedOn) {
  const fs::path folder = fresh_folder();
  copy_shapes(folder);
  const fs::path images = folder / "data/images/train";
  const fs::path labels = folder / "data/labels/train";
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(images)) {
    names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  fs::resize_file(names[0], fs::file_size(names[0]) / 2);  // truncated
  write(names[1], "<html>not found</html>");
  const auto label = [&](size_t i) {
    return labels / names[i].stem().concat(".txt");
  };
  write(label(2), "0 0.5 0.5 nan 0.2\n0 0.5 0.5 0.2 0.2\n");
  write(label(3), "0 0.5 0.5 0 0.2\n0 1.5 0.5 -0.1 0.2\n");
  const ProgramResult result = run_program(
      {program("headroom"), "train", "--data", "data/data.yaml", "--cfg",
       "yolov5n", "--img", "64", "--batch", "8", "--max-steps", "2"},
      folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string report = text_of(folder / "runs/train/exp/data_report.txt");
  for (const std::string& name :
       {names[0].filename().string(), names[1].filename().string(),
        label(2).filename().string() + ":1",
        label(3).filename().string() + ":1",
        label(3).filename().string() + ":2"}) {
    EXPECT_THAT(report, HasSubstr(name)) << name << "\n" << report;
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// A refused plan prints the command to type next; this command, and each other
// suggested flag, gives a plan that fits.
class RefusedPlan : public ::testing::TestWithParam<std::string> {};

TEST_P(RefusedPlan, PrintsACommandThatFits) {
  const auto plan = [](const std::string& flags) {
    return run_program(joined({program("headroom"), "plan"}, words_of(flags)),
                       fresh_folder());
  };
  const ProgramResult refused = plan(GetParam());
  ASSERT_EQ(refused.exit_code, 3) << refused.err;
  // With the limit of a whole card, the search takes 12 to 40 s of processor
  // time, depending on the processor.
  EXPECT_LT(refused.seconds, 120);
  const std::string start = ": use headroom plan ";
  const size_t begin = refused.err.find(start);
  ASSERT_NE(begin, std::string::npos) << refused.err;
  std::istringstream remedies(refused.err.substr(begin + start.size()));
  int count = 0;
  for (std::string remedy; std::getline(remedies, remedy, '(');) {
    std::string rest;
    std::getline(remedies, rest, ')');
    const std::string others = ", or ";
    const bool is_command = count == 0;
    if (!is_command && !remedy.starts_with(others)) break;
    std::string flags = remedy;
    if (!is_command) {
      const std::string changed = remedy.substr(others.size());
      // Each flag replaces the given one: a flag may not be given twice.
      flags = GetParam();
      for (const std::string& word : words_of(changed)) {
        if (!word.starts_with("--")) continue;
        flags = std::regex_replace(flags, std::regex(word + "[ =][^ ]+"), "");
      }
      flags += " " + changed;
    }
    const ProgramResult fits = plan(flags);
    EXPECT_EQ(fits.exit_code, 0) << flags << "\n" << fits.err;
    ++count;
  }
  EXPECT_GE(count, 2) << refused.err;
}

TEST(PlanForGtx16, SaysWhatFloat32WouldTake) {
  const std::vector<std::string> words = {
      program("headroom"), "plan",  "--gpu", "GTX 1650", "--cfg",
      "yolov5s",           "--img", "640",   "--batch",  "8"};
  const ProgramResult plan = run_program(words, fresh_folder());
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("fp16, as NVIDIA GTX 1650 has no bf16"));
  EXPECT_THAT(plan.err,
              HasSubstr("in fp32, which it takes if the check fails, the "
                        "tensors of the fullest card take "));
}

INSTANTIATE_TEST_SUITE_P(
    Examples, RefusedPlan,
    ::testing::Values(
        "--gpu-memory 2GiB --cfg yolov5x --img 1280 --batch 32",
        "--memory-limit 400MiB --cfg yolov5m",
        "--memory-limit=20MiB --cfg yolov5n --img 64 --batch-size 4",
        "--cfg yolov5m --memory-limit 4GiB --activations keep "
        "--micro-batch 32 --img 1536 --batch 32",
        "--gpu A100 --cfg yolov5x --img 1280 --batch 64 --precision fp32 "
        "--activations keep --micro-batch 64",
        "--gpu T4 --cfg yolov5l --img 1536 --batch 32 --precision fp32 "
        "--activations lean --micro-batch 16",
        "--cluster g4dn.xlarge:1 --cfg yolov5x --img 2048 --batch 32 "
        "--activations keep --micro-batch 32"));

}  // namespace
}  // namespace headroom::testing
