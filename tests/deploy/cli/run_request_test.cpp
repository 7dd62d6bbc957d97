#include "deploy/cli/run_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/planner.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::refusal_of;
using ::testing::StartsWith;
using testing::TemporaryFolder;

class RunRequestTest : public ::testing::Test {
 protected:
  RunRequestTest() {
    root_.folder("images");
    data_ =
        root_.write("data.yaml", "train: images\nval: images\nnames: [a, b]\n");
  }

  CommandLine line(std::vector<std::string> flags) const {
    std::vector<std::string> words = {"train", "--data", data_.string(),
                                      "--project", root_.path().string()};
    words.insert(words.end(), flags.begin(), flags.end());
    return parse_command_line(words);
  }
  using Flags = std::vector<std::string>;
  RunRequest request(const Flags& flags,
                     const std::optional<LauncherPlace>& place = {}) const {
    return make_run_request(line(flags), place, 8);
  }
  std::string refusal(const Flags& flags,
                      const std::optional<LauncherPlace>& place = {}) const {
    return refusal_of([&] { request(flags, place); });
  }
  // The run in exp/, resumed with only these flags.
  RunRequest resumed(const Flags& flags = {},
                     const std::optional<LauncherPlace>& place = {}) const {
    Flags words = {"train", "--resume", (root_.path() / "exp").string()};
    words.insert(words.end(), flags.begin(), flags.end());
    return make_run_request(parse_command_line(words), place, 8);
  }
  std::string refusal_of_resumed(
      const Flags& flags = {},
      const std::optional<LauncherPlace>& place = {}) const {
    return refusal_of([&] { resumed(flags, place); });
  }
  static LauncherPlace slots(int size, int local_size) {
    return {.launcher = "mpirun",
            .size = size,
            .local_size = local_size,
            .job_id = "7"};
  }
  // Saves a run of yolov5n in exp/, after `change` has altered its
  // configuration.
  template <typename Change>
  fs::path save_run(const Change& change) const {
    configs::RunConfig config;
    config.cfg = "yolov5n";
    config.data = data_.string();
    change(config);
    root_.write("exp/run.yaml", configs::to_yaml(config));
    return root_.folder("exp/checkpoints").parent_path();
  }
  fs::path save_run() const {
    return save_run([](configs::RunConfig&) {});
  }

  TemporaryFolder root_;
  fs::path data_;
};

TEST_F(RunRequestTest, OneProcessWithAllCoresByDefault) {
  const RunRequest run = request({"--cfg", "yolov5n"});
  EXPECT_EQ(run.expected_workers(), 1);
  EXPECT_EQ(run.config.processes, 1);
  EXPECT_EQ(run.config.threads, 8);
  EXPECT_EQ(run.run_directory, root_.path() / "exp");
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST_F(RunRequestTest, AFaultOfARankThatIsNotThereIsRefused) {
  EXPECT_EQ(refusal({"--cfg", "yolov5n", "--processes", "2", "--inject",
                     "oom@rank=1,step=3;nan@rank=2,step=4"}),
            "[config] --inject nan@rank=2,step=4: there is no rank 2, ranks "
            "are counted from 0: use rank=0 to rank=1");
  EXPECT_EQ(refusal({"--cfg", "yolov5n", "--processes", "2", "--inject",
                     "oom@rank=1,step=3"}),
            "accepted");
}

TEST_F(RunRequestTest, FreezingEveryLayerIsRefusedBeforeAStart) {
  EXPECT_EQ(refusal({"--cfg", "yolov5n", "--freeze", "26"}),
            "[model] --freeze 26 would train nothing: yolov5n has 25 layers: "
            "use 0 to 24; 10 freezes the backbone of YOLOv5 and YOLOv8");
  EXPECT_THAT(refusal({"--cfg", "yolov5n", "--freeze", "25"}),
              HasSubstr("would train nothing"));
  EXPECT_EQ(refusal({"--cfg", "yolov5n", "--freeze", "24"}), "accepted");
}

TEST_F(RunRequestTest,
       WithoutModelOrWeightsYolov5sStartsFromScratchWithANotice) {
  const RunRequest run = request({});
  EXPECT_EQ(run.config.cfg, "yolov5s");
  EXPECT_THAT(run.notes,
              ElementsAre("no --cfg and no --weights: training yolov5s from "
                          "scratch; --cfg yolov5su has a newer head (on COCO "
                          "43.0 AP instead of 37.4, by its authors)"));
}

TEST_F(RunRequestTest, ABatchBeyondTheRulesSaysSo) {
  EXPECT_THAT(request({"--cfg", "yolov5n", "--batch", "1024"}).notes,
              IsEmpty());
  EXPECT_THAT(request({"--cfg", "yolov5n", "--batch", "1025"}).notes,
              ElementsAre(HasSubstr("batch 1025: above 1024 images")));
}

TEST_F(RunRequestTest, ThePlanUnderALimitIsReported) {
  const RunRequest run =
      request({"--cfg", "yolov5n", "--memory-limit", "1GiB"});
  EXPECT_THAT(run.notes, ElementsAre(AllOf(HasSubstr("plan: "),
                                           HasSubstr("of 1 GiB needed"))));
}

// Labels are counted only if a memory limit makes them matter; a resumed run
// keeps the counts that it recorded.
TEST_F(RunRequestTest, LabelsAreMeasuredWhereTheyMatter) {
  int asked = 0;
  const AskData measure = [&](configs::RunConfig& config,
                              WantedFacts question) {
    EXPECT_EQ(config.data, data_.string());
    EXPECT_TRUE(question.label_counts);
    ++asked;
    config.label_counts = "2x30";
  };
  const auto counts = [&](const std::vector<std::string>& flags) {
    return make_run_request(line(flags), std::nullopt, 8, measure)
        .config.label_counts;
  };
  EXPECT_EQ(counts({"--cfg", "yolov5n"}), "");
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(counts({"--cfg", "yolov5n", "--memory-limit", "4GiB"}), "2x30");
  EXPECT_EQ(
      counts({"--cfg", "yolov5n", "--memory-limit", "4GiB", "--batch", "-1"}),
      "2x30");
  EXPECT_EQ(counts({"--memory-limit", "4GiB", "--synthetic-input"}), "");
  EXPECT_EQ(asked, 2);
  const fs::path run = save_run([](configs::RunConfig& saved) {
    saved.memory_limit = int64_t{4} << 30;
    saved.label_counts = "9x9";
  });
  EXPECT_EQ(counts({"--resume", run.string()}), "2x30") << "--data is given";
  const CommandLine resumed =
      parse_command_line({"train", "--resume", run.string()});
  EXPECT_EQ(
      make_run_request(resumed, std::nullopt, 8, measure).config.label_counts,
      "9x9");
  EXPECT_EQ(asked, 3);
}

// A range that is given as numbers is copied. Percentiles are measured later,
// by the worker of a run or by a plan. The range in data.yaml has an effect
// only on a new run.
TEST_F(RunRequestTest, TheRangeOfDataYamlBecomesTheRuns) {
  int asked = 0;
  const AskData measure = [&](configs::RunConfig& config, WantedFacts wanted) {
    EXPECT_TRUE(wanted.value_range);
    ++asked;
    config.value_range = "7,9";
  };
  const auto range = [&](const std::string& range,
                         const std::vector<std::string>& flags,
                         std::optional<LauncherPlace> place = std::nullopt) {
    std::ofstream(data_) << "train: images\nval: images\nnames: [a, b]\n"
                         << range;
    return make_run_request(line(flags), place, 8, measure).config.value_range;
  };
  EXPECT_EQ(range("", {}), "");
  EXPECT_EQ(range("", {"--set", "value_range=1,5"}), "1,5");
  EXPECT_EQ(range("range: [0, 4095]\n", {}), "0,4095");
  EXPECT_EQ(range("range: [0, 4095]\n", {"--synthetic-input"}), "");
  EXPECT_EQ(asked, 0);
  const std::string percentiles = "range: {percentiles: [1, 99]}\n";
  EXPECT_EQ(range(percentiles, {}), "7,9");
  EXPECT_EQ(asked, 1);
  LauncherPlace second;
  second.size = 2;
  second.rank = 1;
  EXPECT_EQ(range(percentiles, {}, second), "") << "rank 0 measures";
  EXPECT_EQ(asked, 1);
  const fs::path run =
      save_run([](configs::RunConfig& saved) { saved.value_range = "3,4"; });
  EXPECT_EQ(range("range: [0, 4095]\n", {"--resume", run}), "3,4");
  EXPECT_THROW(range("range: [9, 1]\n", {}), Error);
}

// The process that reads the labels also checks the anchors, so that the run's
// own process need not read the data again.
TEST_F(RunRequestTest, TheDataIsReadOnceForAllQuestions) {
  std::vector<bool> anchors;
  const AskData ask = [&](configs::RunConfig& config, WantedFacts question) {
    anchors.push_back(question.anchors);
    config.label_counts = "2x30";
    if (question.anchors) config.anchors_reason = "kept";
  };
  const std::vector<std::string> limited = {"--memory-limit", "4GiB"};
  const configs::RunConfig first =
      make_run_request(line(limited), std::nullopt, 8, ask).config;
  EXPECT_FALSE(wants_anchors(first));
  EXPECT_TRUE(has_judged_anchors(first));
  LauncherPlace place;
  place.size = 2;
  place.rank = 1;
  const configs::RunConfig second =
      make_run_request(line(limited), place, 8, ask).config;
  EXPECT_TRUE(wants_anchors(second)) << "as rank 0 judges them";
  EXPECT_FALSE(has_judged_anchors(second));
  make_run_request(line({"--memory-limit", "4GiB", "--noautoanchor"}),
                   std::nullopt, 8, ask);
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--data", data_.string()});
    make_run_request(parse_command_line(words), std::nullopt, 8, ask);
  };
  plan({"plan"});
  plan({"plan", "--write", "ask"});
  EXPECT_THAT(anchors, ElementsAre(true, false, false, false, true));
}

TEST_F(RunRequestTest, ALauncherThatCountsDevicesSetsTheWorkersOfAnAgent) {
  LauncherPlace place = slots(2, 1);
  place.workers = 4;
  EXPECT_EQ(request({}, place).expected_workers(), 8);
  EXPECT_EQ(request({"--processes", "1"}, place).expected_workers(), 2);
  EXPECT_EQ(request({"--layout", "data=2"}, place).expected_workers(), 2);
  EXPECT_EQ(request({"--device", "cpu"}, place).expected_workers(), 8);
  place.counts_cards = true;
  EXPECT_EQ(request({"--device", "cpu"}, place).expected_workers(), 2);
}

// If the launcher promises cards, the run must not fall back to the CPU.
// Otherwise a machine whose driver does not load would train on the CPU
// unnoticed.
TEST_F(RunRequestTest, CardsPromisedByALauncherAreTrusted) {
  LauncherPlace place = slots(2, 1);
  place.workers = 4;
  place.counts_cards = place.promises_cards = true;
  EXPECT_THAT(refusal({}, place), HasSubstr("--device all asks for cards"));
  EXPECT_EQ(request({"--device", "cpu"}, place).config.device, "cpu");
}

TEST_F(RunRequestTest, ProcessesShareTheCores) {
  const RunRequest run = request({"--cfg", "yolov5n", "--processes", "3"});
  EXPECT_EQ(run.expected_workers(), 3);
  EXPECT_EQ(run.config.threads, 2);
  EXPECT_EQ(request({"--processes", "16"}).config.threads, 1);
  EXPECT_EQ(request({"--processes", "2", "--threads", "1"}).config.threads, 1);
}

TEST_F(RunRequestTest, TheLayoutNumbersTheProcesses) {
  EXPECT_EQ(request({"--layout", "data=4"}).expected_workers(), 4);
  EXPECT_EQ(refusal({"--layout", "data=4", "--processes", "2"}),
            "[plan] --layout: data 4 x pipeline 1 x spatial 1 = 4 processes, "
            "but there are 2: use --processes 4 (under mpirun or srun it "
            "counts per slot), or a layout of 2");
  EXPECT_EQ(request({"--layout", "data=2,pipeline=2,spatial=2", "--bn-group",
                     "2", "--cfg", "yolov5n"})
                .expected_workers(),
            8);
}

TEST_F(RunRequestTest, UnderALauncherProcessesCountPerSlot) {
  EXPECT_EQ(request({}, slots(2, 2)).expected_workers(), 2);
  EXPECT_EQ(request({}, slots(2, 2)).config.threads, 4);
  const RunRequest run = request({"--processes", "2"}, slots(4, 2));
  EXPECT_EQ(run.num_agents, 4);
  EXPECT_EQ(run.workers_per_agent, 2);
  EXPECT_EQ(run.config.processes, 8);
  EXPECT_EQ(run.config.threads, 2);  // this host has 4 workers
  EXPECT_EQ(request({"--layout", "data=4"}, slots(2, 1)).workers_per_agent, 2);
}

TEST_F(RunRequestTest, MpiNeedsOneWorkerPerSlot) {
  EXPECT_EQ(refusal({"--backend", "mpi", "--processes", "2"}, slots(2, 2)),
            "[mpi] --backend mpi needs one worker per slot of mpirun, but "
            "--processes is 2: start more slots (-np N) with --processes 1");
  EXPECT_EQ(refusal({"--backend", "mpi", "--processes", "2"}),
            "[mpi] --backend mpi with 2 processes, but no mpirun started this "
            "one: use mpirun -np 2 headroom ... --processes 1, or another "
            "--backend");
  EXPECT_EQ(request({"--backend", "mpi"}, slots(2, 2)).expected_workers(), 2);
}

TEST_F(RunRequestTest, MissingFilesAreRefusedBeforeAnythingStarts) {
  EXPECT_EQ(refusal({"--weights", "gone.safetensors"}),
            "[weights] there is no file gone.safetensors: nothing is "
            "downloaded: get the file, YOLOv5's own with headroom fetch, and "
            "give its path, or leave --weights out");
  // Without weights val has nothing to validate.
  EXPECT_EQ(refusal_of([&] {
              make_run_request(
                  parse_command_line({"val", "--data", data_.string(),
                                      "--weights", "gone.pt"}),
                  {}, 2);
            }),
            "[weights] there is no file gone.pt: nothing is downloaded: get "
            "the file, YOLOv5's own with headroom fetch, and give its path");
  const std::string empty = root_.write("empty.pt", "");
  EXPECT_EQ(refusal({"--weights", empty}),
            "[weights] " + empty +
                " is an empty file, not weights: name a "
                ".safetensors file, or YOLOv5's .pt");
  EXPECT_THAT(refusal({"--data", "gone.yaml"}), HasSubstr("gone.yaml"));
  EXPECT_THAT(refusal({"--cfg", "yolov9"}), HasSubstr("yolov9"));
  EXPECT_FALSE(fs::exists(root_.path() / "exp"));
}

TEST_F(RunRequestTest, BatchSmallerThanTheDataAxis) {
  EXPECT_EQ(refusal({"--batch", "1", "--layout", "data=2"}),
            "[plan] global_batch_size (--batch) 1 < data axis 2: a process "
            "would have no image: use --batch 2 or more, or --layout data=1 or "
            "less");
}

TEST_F(RunRequestTest, ResumeRestoresTheRun) {
  const fs::path directory = save_run([](configs::RunConfig& saved) {
    saved.epochs = 60;
    saved.processes = 2;
    saved.threads = 3;
    saved.hyp_file = "scratch-high";
    saved.hyp.lr0 = 0.5;  // a value of --set, not the file's
  });
  const RunRequest run = resumed();
  EXPECT_EQ(run.run_directory, directory);
  EXPECT_EQ(run.config.resume, directory);
  EXPECT_EQ(run.config.cfg, "yolov5n");
  EXPECT_EQ(run.config.epochs, 60);
  EXPECT_EQ(run.config.hyp.lr0, 0.5);
  EXPECT_EQ(run.config.threads, 3);
  EXPECT_EQ(run.expected_workers(), 2);
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST_F(RunRequestTest, DataThatMovedIsNamedAnewWithTheResume) {
  const fs::path directory = save_run();
  const fs::path moved = root_.path() / "moved.yaml";
  fs::rename(data_, moved);
  EXPECT_EQ(refusal_of_resumed(),
            "[resume] the run's data, " + data_.string() +
                ", is not there: if it has moved, write headroom train "
                "--resume " +
                directory.string() + " --data NEW_PLACE");
  EXPECT_EQ(refusal_of_resumed({"--data", moved.string()}), "accepted");
}

TEST_F(RunRequestTest, ThePrecisionIsChosenAndReported) {
  const RunRequest run = request({"--cfg", "yolov5n"});
  EXPECT_EQ(run.config.precision, configs::Precision::kFp32);
  EXPECT_THAT(headline(run), HasSubstr(", batch 16, CPU, fp32, processes 1 x"));
  const RunRequest planned = make_run_request(
      parse_command_line({"plan", "--cfg", "yolov5n", "--device", "0"}), {}, 8,
      {}, /*must_fit=*/false,
      wire::NodeCard{.index = 0, .compute_capability = 80});
  EXPECT_EQ(planned.config.precision, configs::Precision::kBf16);
}

TEST_F(RunRequestTest, AResumedRunKeepsItsPrecision) {
  for (const configs::Precision precision :
       {configs::Precision::kFp32, configs::Precision::kBf16}) {
    save_run([&](configs::RunConfig& saved) { saved.precision = precision; });
    for (const Flags& more : {Flags{}, Flags{"--precision", "auto"}}) {
      const RunRequest run = resumed(more);
      EXPECT_EQ(run.config.precision, precision);
      EXPECT_THAT(run.notes, IsEmpty());
    }
  }
}

TEST_F(RunRequestTest, ResumeWithoutAFolderTakesTheNewestOfTheProject) {
  const fs::path directory = save_run();
  const RunRequest run =
      make_run_request(parse_command_line({"train", "--resume", "--project",
                                           root_.path().string()}),
                       {}, 8);
  EXPECT_EQ(run.run_directory, directory);
}

TEST_F(RunRequestTest, ResumeReportsOverriddenSettings) {
  save_run([](configs::RunConfig& saved) {
    saved.epochs = 60;
    saved.processes = 2;
    saved.layout = plan::parse_layout("data=2");
  });
  const RunRequest run = resumed({"--epochs", "80", "--processes", "4"});
  EXPECT_EQ(run.expected_workers(), 4);
  EXPECT_EQ(run.config.layout, std::nullopt);
  EXPECT_THAT(run.notes,
              ElementsAre("resume: epochs was 60 and is now 80",
                          "resume: processes was 2 and is now 4",
                          "resume: layout was data=2 and is now chosen anew"));
}

TEST_F(RunRequestTest, ARequestWithoutAPlanIsRefusedBeforeAnythingStarts) {
  EXPECT_EQ(refusal({"--cfg", "yolov5n", "--layout", "pipeline=20"}),
            "[plan] --layout pipeline=20: every stage needs a layer with "
            "parameters, and 20 stages > 19 such layers of the model: use "
            "pipeline=19 or less");
  EXPECT_EQ(refusal({"--sync-bn", "--bn-group", "4"}),
            "[plan] --sync-bn makes one group of the whole --batch of 16, but "
            "--bn-group is 4: leave one of the two out");
  EXPECT_FALSE(fs::exists(root_.path() / "exp"));
}

TEST_F(RunRequestTest, APlanNeedsNoData) {
  const CommandLine plan = parse_command_line({"plan", "--layout", "data=2"});
  const RunRequest run = make_run_request(plan, {}, 8);
  EXPECT_EQ(run.config.command, "train");
  EXPECT_EQ(run.expected_workers(), 2);
  EXPECT_EQ(refusal_of(
                [] { make_run_request(parse_command_line({"train"}), {}, 8); }),
            "[config] there is no data set: give --data DATA.YAML "
            "(configs/data/own_images.yaml explains its lines)");
}

TEST_F(RunRequestTest, ThePlanIsRestoredAsAWholeOrChosenAnew) {
  save_run([](configs::RunConfig& saved) {
    saved.processes = 4;
    saved.layout = plan::parse_layout("data=2,pipeline=2");
    saved.zero_stage = 3;
    saved.micro_batch_size = 4;
    saved.batch_norm_group_size = 4;
    saved.activations = "recompute";
  });
  RunRequest run = resumed();
  EXPECT_EQ(run.expected_workers(), 4);
  EXPECT_EQ(run.config.layout, plan::parse_layout("data=2,pipeline=2"));
  EXPECT_EQ(run.config.zero_stage, 3);
  EXPECT_EQ(run.config.activations, "recompute");
  EXPECT_THAT(run.notes, IsEmpty());
  for (const Flags& flag : std::vector<Flags>{{"--zero", "1"},
                                              {"--activations", "keep"},
                                              {"--micro-batch", "8"},
                                              {"--layout", "data=3"},
                                              {"--processes", "2"},
                                              {"--set", "zero_stage=1"}}) {
    SCOPED_TRACE(flag[0]);
    run = resumed(flag);
    EXPECT_NE(run.config.layout, plan::parse_layout("data=2,pipeline=2"));
    EXPECT_NE(run.config.zero_stage, 3);
    EXPECT_NE(run.config.micro_batch_size, 4);
    EXPECT_NE(run.config.activations, "recompute");
    EXPECT_EQ(run.config.batch_norm_group_size, 4);
  }
}

// Two runs keep their batch-norm groups, with any number of processes. One run
// is from a version without even groups, and has a batch of 17 in groups of 1.
// The other run is from the current version.
TEST_F(RunRequestTest, ARunGoesOnWithItsBatchNormGroups) {
  save_run([](configs::RunConfig& saved) { saved.global_batch_size = 17; });
  EXPECT_EQ(resumed({}).config.batch_norm_rule, std::nullopt);
  plan::Plan plan;
  plan.micro_batch_size = 17;
  for (const plan::BatchNormRule rule :
       {plan::BatchNormRule{1, false}, plan::BatchNormRule{16, true}}) {
    plan.batch_norm_group_size = rule.size;
    plan.even_batch_norm_groups = rule.even;
    root_.write("exp/plan.json", plan::plan_to_json(plan));
    EXPECT_EQ(resumed({}).config.batch_norm_rule, rule);
    EXPECT_TRUE(resumed({}).saved_plan);
    const RunRequest other = resumed({"--processes", "2"});
    EXPECT_FALSE(other.saved_plan);
    EXPECT_EQ(planner::choose_plan(other.config, 2, {}).plan->batch_norm_rule(),
              rule);
  }
}

TEST_F(RunRequestTest, SettingsThatDefineAStepCannotChangeOnResume) {
  save_run([](configs::RunConfig& saved) {
    saved.anchors = "1,2; 3,4; 5,6";
    saved.anchors_reason = "found";
  });
  EXPECT_EQ(resumed().config.anchors, "1,2; 3,4; 5,6");
  EXPECT_EQ(refusal_of_resumed({"--batch", "32"}),
            "[resume] global_batch_size (--batch) was 16 and cannot become 32: "
            "the committed steps were made with it: leave it out, or start a "
            "new run without --resume");
  EXPECT_THAT(refusal_of_resumed({"--single-cls"}),
              HasSubstr("single_cls was false"));
  EXPECT_THAT(refusal_of_resumed({"--sync-bn"}),
              HasSubstr("sync_batch_norm (--sync-bn) was false"));
  EXPECT_THAT(refusal_of_resumed({"--optimizer", "Adam"}),
              HasSubstr("optimizer was SGD"));
  EXPECT_THAT(refusal_of_resumed({"--set", "anchors=7,8; 3,4; 5,6"}),
              HasSubstr("anchors was 1,2; 3,4; 5,6 and cannot become 7,8; "
                        "3,4; 5,6: the committed steps were made with it"));
}

TEST_F(RunRequestTest, AProgramForSamplesComesFromTheCommandLineAlone) {
  const std::string refused =
      "[augment] the run's augment_program is 'cat -', but --augment-program "
      "here is '': no file starts a program, and its samples define the run: "
      "give --augment-program 'cat -' here too, or start a run without it";
  const std::string file =
      root_.write("run.yaml", "augment_program: cat -\n").string();
  EXPECT_EQ(refusal({"--config", file}), refused);
  EXPECT_EQ(refusal({"--set", "augment_program=cat -"}), refused);
  for (const Flags& more : {Flags{}, Flags{"--config", file}}) {
    Flags flags = {"--augment-program", "cat -"};
    flags.insert(flags.end(), more.begin(), more.end());
    EXPECT_EQ(request(flags).config.augment_program, "cat -");
  }
  EXPECT_THAT(refusal({"--config", file, "--augment-program", "true"}),
              HasSubstr("is 'cat -', but --augment-program here is true"));
  EXPECT_EQ(
      refusal_of([&] {
        make_run_request(parse_command_line({"plan", "--config", file}), {}, 8);
      }),
      "accepted")
      << "a plan starts nothing";
}

TEST_F(RunRequestTest, AResumedRunGetsItsProgramForSamplesAgain) {
  const Flags flag = {"--augment-program", "cat"};
  save_run([](configs::RunConfig&) {});
  EXPECT_EQ(refusal_of_resumed(flag),
            "[augment] the run's augment_program is '', but --augment-program "
            "here is cat: no file starts a program, and its samples define the "
            "run: leave the flag out, or start a new run with it");
  save_run([](configs::RunConfig& saved) { saved.augment_program = "cat"; });
  EXPECT_EQ(refusal_of_resumed(),
            "[augment] the run's augment_program is cat, but --augment-program "
            "here is '': no file starts a program, and its samples define the "
            "run: give --augment-program cat here too, or start a run without "
            "it");
  EXPECT_THAT(refusal_of_resumed({"--set", "augment_program="}),
              HasSubstr("augment_program was cat and cannot become ''"));
  EXPECT_EQ(resumed(flag).config.augment_program, "cat");
}

// A user may edit the model's file between a run and its resume.
TEST_F(RunRequestTest, ARunGoesOnWithItsOwnModelOnly) {
  const std::string table =
      layers::model_table_text(layers::load_model_table("yolov5n"));
  const fs::path cfg = root_.write("my.yaml", "# mine\n" + table);
  const fs::path run =
      save_run([&](configs::RunConfig& saved) { saved.cfg = cfg.string(); });
  EXPECT_THAT(refusal_of_resumed({"--cfg", "yolov5s"}),
              HasSubstr("cfg was " + cfg.string() +
                        " and cannot become yolov5s: the committed steps were "
                        "made with it"))
      << "a run of an older build has no record";
  root_.write("exp/model.yaml", table);
  EXPECT_EQ(refusal_of_resumed({}), "accepted");
  const fs::path copy = root_.write("copy.yaml", table);
  EXPECT_EQ(refusal_of_resumed({"--cfg", copy.string()}), "accepted")
      << "it was moved";
  EXPECT_THAT(
      refusal_of_resumed({"--cfg", "yolov5s"}),
      AllOf(HasSubstr("[resume] yolov5s is not the model that " + run.string() +
                      " was begun with: width_multiple "
                      "was 0.25 and is now 0.5"),
            HasSubstr("go on with --cfg " + run.string() + "/model.yaml")));
  EXPECT_EQ(refusal_of_resumed({"--weights", "other.safetensors"}),
            "[resume] --weights other.safetensors would change nothing: a "
            "resumed run has the weights of its checkpoint: leave it out, or "
            "start a new run with it, without --resume");
  std::string edited = table;
  ASSERT_NE(table.find("[-1, 6, C3, [256]]"), std::string::npos) << table;
  edited.replace(table.find("[-1, 6, C3, [256]]"), 18, "[-1, 9, C3, [256]]");
  root_.write("my.yaml", edited);
  EXPECT_THAT(
      refusal_of_resumed({}),
      HasSubstr("[resume] " + cfg.string() + " is not the model that " +
                run.string() +
                " was begun with: layer 4 was [-1, 6, C3, [256]] and is "
                "now [-1, 9, C3, [256]]"));
  EXPECT_EQ(refusal_of_resumed({"--cfg", (run / "model.yaml").string()}),
            "accepted");
}

TEST_F(RunRequestTest, ResumeUnderALauncherSharesTheProcesses) {
  save_run([](configs::RunConfig& saved) { saved.processes = 3; });
  EXPECT_EQ(resumed({}, slots(3, 3)).workers_per_agent, 1);
  EXPECT_EQ(refusal_of_resumed({}, slots(2, 2)),
            "[resume] the run has 3 processes, which 2 agents cannot share "
            "equally: give "
            "--processes N, the number per agent");
}

// The file of --config may be the run.yaml of an earlier run.
TEST_F(RunRequestTest, AnchorsThatARunFoundAreNotTheNextOnes) {
  configs::RunConfig found;
  found.anchors = "1,2; 3,4; 5,6";
  found.anchors_reason = "found";
  root_.write("found.yaml", configs::to_yaml(found));
  const std::string file = (root_.path() / "found.yaml").string();
  EXPECT_EQ(request({"--config", file}).config.anchors, "");
  found.anchors_reason = "";
  root_.write("found.yaml", configs::to_yaml(found));
  EXPECT_EQ(request({"--config", file}).config.anchors, found.anchors);
}

}  // namespace
}  // namespace headroom::cli
