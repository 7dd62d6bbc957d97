#include "deploy/cli/args/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "deploy/cli/args/help_text.h"
#include "tests/support/refusal.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

CommandLine parse(const std::string& line) {
  return parse_command_line(words_of(line));
}

configs::RunConfig config_of(const std::string& flags) {
  const CommandLine line = parse("train " + flags);
  return configs::run_config_from_flags("train", line.run_flags);
}

std::string refusal(const std::string& words) {
  return testing::refusal_of([&] {
    const CommandLine line = parse(words);
    configs::run_config_from_flags(line.command, line.run_flags);
  });
}

TEST(CommandLine, EverySpellingSetsItsKey) {
  EXPECT_EQ(config_of("--data d.yaml").data, "d.yaml");
  EXPECT_EQ(config_of("--cfg yolov5n").cfg, "yolov5n");
  EXPECT_EQ(config_of("--weights w.safetensors").weights, "w.safetensors");
  for (const char* img : {"--img", "--imgsz", "--img-size"}) {
    EXPECT_EQ(config_of(std::string(img) + " 320").image_height, 320);
    EXPECT_EQ(config_of(std::string(img) + " 320").image_width, 320);
    EXPECT_EQ(config_of(std::string(img) + " 320 480").image_height, 320);
    EXPECT_EQ(config_of(std::string(img) + " 320 480").image_width, 480);
  }
  EXPECT_EQ(config_of("--batch 64").global_batch_size, 64);
  EXPECT_EQ(config_of("--batch-size 64").global_batch_size, 64);
  EXPECT_EQ(config_of("--epochs 7").epochs, 7);
  EXPECT_EQ(config_of("--max-steps 12").max_steps, 12);
  EXPECT_EQ(config_of("--optimizer Adam").optimizer,
            configs::OptimizerKind::kAdam);
  EXPECT_TRUE(config_of("--cos-lr").cos_lr);
  EXPECT_EQ(config_of("--label-smoothing 0.1").label_smoothing, 0.1);
  EXPECT_TRUE(config_of("--single-cls").single_cls);
  EXPECT_TRUE(config_of("--rect").rect);
  EXPECT_EQ(config_of("--freeze 10").freeze, 10);
  EXPECT_EQ(config_of("--seed 3").seed, 3u);
  EXPECT_EQ(config_of("--precision fp64").precision, configs::Precision::kFp64);
  EXPECT_EQ(config_of("--patience 5").patience, 5);
  EXPECT_EQ(config_of("--bn-group 4").batch_norm_group_size, 4);
  EXPECT_EQ(config_of("--device cpu").device, "cpu");
  EXPECT_EQ(config_of("--processes 2").processes, 2);
  EXPECT_EQ(config_of("--layout data=2").layout,
            plan::ParallelLayout{.data_parallel_size = 2});
  EXPECT_EQ(config_of("--micro-batch 4").micro_batch_size, 4);
  EXPECT_EQ(config_of("--zero 3").zero_stage, 3);
  EXPECT_EQ(config_of("--activations recompute").activations, "recompute");
  EXPECT_TRUE(config_of("--sync-bn").sync_batch_norm);
  EXPECT_EQ(config_of("--backend gloo").backend, plan::Backend::kGloo);
  EXPECT_EQ(config_of("--threads 1").threads, 1);
  EXPECT_EQ(config_of("--workers 4").loader_threads, 4);
  EXPECT_EQ(config_of("--host-memory-limit 2GiB").host_memory_limit,
            int64_t{2} << 30);
  EXPECT_TRUE(config_of("--synthetic-input").synthetic_input);
  EXPECT_EQ(config_of("--project p").project, "p");
  EXPECT_EQ(config_of("--name n").name, "n");
  EXPECT_TRUE(config_of("--exist-ok").exist_ok);
  EXPECT_EQ(config_of("--resume runs/train/exp").resume, "runs/train/exp");
  EXPECT_EQ(config_of("--resume --epochs 9").resume, "latest");
  EXPECT_TRUE(config_of("--noval").noval);
  EXPECT_TRUE(config_of("--nosave").nosave);
  EXPECT_EQ(config_of("--save-period -1").save_period, -1);
  EXPECT_EQ(config_of("--save-period=5").save_period, 5);
  EXPECT_EQ(config_of("--save_period=5").save_period, 5);
}

TEST(CommandLine, TheFlagsOfVal) {
  const CommandLine line =
      parse("val --task test --conf-thres 0.01 --iou-thres 0.5 --max-det 100");
  const configs::RunConfig config =
      configs::run_config_from_flags("val", line.run_flags);
  EXPECT_EQ(config.command, "val");
  EXPECT_EQ(config.task, "test");
  EXPECT_EQ(config.confidence_threshold, 0.01);
  EXPECT_EQ(config.nms_iou_threshold, 0.5);
  EXPECT_EQ(config.max_detections, 100);
}

TEST(CommandLine, LaterFlagsAndSetsWin) {
  EXPECT_EQ(config_of("--epochs 3 --set epochs=5").epochs, 5);
  EXPECT_EQ(config_of("--set epochs=5 --epochs 3").epochs, 3);
  const configs::RunConfig config = config_of(
      "--set epochs=5 --set hyp.lr0=0.5 --epochs 6 --set "
      "checkpoint_every_steps=3");
  EXPECT_EQ(config.epochs, 6);
  EXPECT_EQ(config.hyp.lr0, 0.5);
  EXPECT_EQ(config.checkpoint_every_steps, 3);
}

TEST(CommandLine, CommandFlagsStandApart) {
  const CommandLine line = parse(
      "train --rendezvous /shared --json --insecure-network --coordinator "
      "10.0.0.5:29500 --epochs 3");
  EXPECT_EQ(line.value_of("--rendezvous"), "/shared");
  EXPECT_TRUE(line.has("--json"));
  EXPECT_TRUE(line.has("--insecure-network"));
  EXPECT_EQ(line.value_of("--coordinator"), "10.0.0.5:29500");
  EXPECT_EQ(line.run_flags.size(), 1u);
  EXPECT_EQ(
      parse("agent --coordinator a:1 --processes 3").count_of("--processes"),
      3);
}

TEST(CommandLine, IgnoredFlagsOfYolov5GiveANotice) {
  const CommandLine line = parse("train --verbose --epochs 3");
  EXPECT_THAT(line.notes, ElementsAre("--verbose changes nothing: every class "
                                      "is always listed"));
  EXPECT_EQ(line.run_flags.size(), 1u);
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_TRUE(parse("--help").help);
  EXPECT_TRUE(parse("help").help);
  EXPECT_TRUE(parse("--version").version);
  EXPECT_EQ(parse("train --epochs 3 --help").command, "train");
  EXPECT_TRUE(parse("train --epochs 3 -h").help);
}

// As in argparse, a prefix is enough. Headroom's own flags do not make a prefix
// of YOLOv5's flags ambiguous.
TEST(CommandLine, APrefixOfAFlagOfYolov5IsThatFlag) {
  const configs::RunConfig config =
      config_of("--epoch 3 --opt Adam --worker 4 --proj p --img-s 320 --pat=7");
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.optimizer, configs::OptimizerKind::kAdam);
  EXPECT_EQ(config.loader_threads, 4);
  EXPECT_EQ(config.project, "p");
  EXPECT_EQ(config.image_height, 320);
  EXPECT_EQ(config.patience, 7);
  const configs::RunConfig val = configs::run_config_from_flags(
      "val", parse("val --conf 0.1 --iou 0.5").run_flags);
  EXPECT_EQ(val.confidence_threshold, 0.1);
  EXPECT_EQ(val.nms_iou_threshold, 0.5);
  const CommandLine detect = parse(
      "detect --weights w.pt --source . --conf 0.5 --iou=0.3 --agn --line 2");
  EXPECT_EQ(detect.value_of("--conf-thres"), "0.5");
  EXPECT_EQ(detect.value_of("--iou-thres"), "0.3");
  EXPECT_TRUE(detect.has("--agnostic-nms"));
  EXPECT_EQ(detect.value_of("--line-thickness"), "2");
}

TEST(CommandLine, AnyNumberOfFormats) {
  EXPECT_EQ(parse("export --weights w.pt --include torchscript onnx openvino "
                  "engine coreml")
                .value_of("--include"),
            "torchscript onnx openvino engine coreml");
}

TEST(CommandLine, ARefusalNamesTheFlagThatWasTyped) {
  EXPECT_EQ(as_typed("image_height (--img) is 30: use --img 64 or --img-mode",
                     {"train", "--imgsz", "30"}),
            "image_height (--imgsz) is 30: use --imgsz 64 or --img-mode");
  EXPECT_EQ(as_typed("--batch -1 asks", {"train", "--batch-size=-1"}),
            "--batch-size -1 asks");
  EXPECT_EQ(as_typed("--img 30, --micro-batch 4", {"train", "--img", "30"}),
            "--img 30, --micro-batch 4");
}

struct Refused {
  std::string words;
  std::string line;
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.words;
}

class RefusedCommandLine : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedCommandLine, InOneLineWithARemedy) {
  EXPECT_EQ(refusal(GetParam().words), GetParam().line);
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedCommandLine,
    ::testing::Values(
        Refused{"", "[command line] no command: headroom --help lists them"},
        Refused{"trian",
                "[command line] unknown command 'trian': did you mean "
                "'train'?"},
        Refused{"train --optimizer LAMB",
                "[config] --optimizer LAMB: 'LAMB' is not SGD, Adam, AdamW or "
                "auto: "
                "for example --optimizer SGD"},
        Refused{"plan --rendezvous /x",
                "[config] unknown flag --rendezvous: headroom plan --help "
                "lists the flags"},
        Refused{"train --epcohs 3",
                "[config] unknown flag --epcohs: did you mean '--epochs'?"},
        Refused{"train --rendesvous=/x",
                "[config] unknown flag --rendesvous: did you mean "
                "'--rendezvous'?"},
        Refused{"train --xyzzy",
                "[config] unknown flag --xyzzy: headroom "
                "train --help lists the flags"},
        Refused{"train --evolve 300",
                "[config] --evolve: the genetic search of hyper-parameters "
                "needs hundreds of whole runs: use a published set, --hyp "
                "scratch-low or scratch-high"},
        Refused{"train --cache",
                "[config] --cache: caching images is not in this version: "
                "leave it out; --workers N reads ahead with N threads"},
        Refused{"train --task test",
                "[config] --task is a flag of headroom val, not of headroom "
                "train: leave it out, or set its key with --set (headroom val "
                "--help)"},
        Refused{"plan --task test",
                "[config] --task is a flag of headroom val, not of headroom "
                "plan: leave it out, or set its key with --set (headroom val "
                "--help)"},
        Refused{"detect --weights a.pt b.pt --source .",
                "[command line] --weights a.pt b.pt: one file of weights is "
                "taken, ensembles are not supported: name one"},
        Refused{"val --weight a.pt b.pt",
                "[command line] --weights a.pt b.pt: one file of weights is "
                "taken, ensembles are not supported: name one"},
        Refused{"export --weights a.pt b.pt",
                "[command line] --weights a.pt b.pt: one file of weights is "
                "taken, ensembles are not supported: name one"},
        Refused{"detect --save --source .",
                "[command line] --save could be --save-txt or --save-format or "
                "--save-csv or --save-conf or --save-crop: write it in full"},
        Refused{"train --evol 3",
                "[command line] --evol could be --evolve or "
                "--evolve_population: write it in full"},
        Refused{"train --set hyp.lr0=0.1 --set hyp.lr0=0.2",
                "[command line] --set hyp.lr0=0.2: the key is set twice: set "
                "it once"},
        Refused{"train --memory-limit 8",
                "[config] --memory-limit 8 has no unit: write --memory-limit "
                "8GiB"},
        Refused{"train --host-memory-limit 2000",
                "[config] --host-memory-limit 2000 has no unit: write "
                "--host-memory-limit 2000MiB"},
        Refused{"train --set memory_limit=8",
                "[config] --set memory_limit=8: it has no unit, or is no size: "
                "write --set memory_limit=8GiB"},
        Refused{"train --hyp hyp.scratch.yaml",
                "[config] there is no file hyp.scratch.yaml, nor a shipped hyp "
                "file of that name: give a path or one of no-augmentation "
                "objects365 scratch-high scratch-low scratch-med voc"},
        Refused{"train my.yaml",
                "[command line] 'my.yaml' belongs to no flag: headroom train "
                "--help shows what may stand where"},
        Refused{"train --epochs three",
                "[config] --epochs three: 'three' is not a whole number: for "
                "example --epochs 100"},
        Refused{"train --processes 0",
                "[config] --processes 0: a run needs at least one process: "
                "leave the flag out to have the number chosen"},
        Refused{"train --img 320 480 --rect --imgsz=640",
                "[command line] --img 320 480 and --imgsz=640: the flag is "
                "given twice: give it once"},
        Refused{"val --batch 8 --batch-size 16",
                "[command line] --batch 8 and --batch-size 16: the flag is "
                "given twice: give it once"},
        Refused{"train --json --epochs 3 --json",
                "[command line] --json and --json: the flag is given twice: "
                "give it once"},
        Refused{"train --hyp a.yaml --hyp b.yaml",
                "[command line] --hyp a.yaml and --hyp b.yaml: the flag is "
                "given twice: give it once"},
        Refused{"train --verbose --verbose",
                "[command line] --verbose and --verbose: the flag is given "
                "twice: give it once"},
        Refused{"detect --img 320 --weights w.pt --imgsz 640",
                "[command line] --img 320 and --imgsz 640: the flag is given "
                "twice: give it once"},
        Refused{
            "status --certs a --certs a",
            "[command line] --certs a and --certs a: the flag is given twice: "
            "give it once"},
        Refused{"train --data",
                "[command line] --data must be followed by DATA.YAML: headroom "
                "train --help shows how to write it"},
        Refused{"train --epochs --rect",
                "[command line] --epochs must be followed by N: headroom train "
                "--help shows how to write it"},
        Refused{"agent --coordinator",
                "[command line] --coordinator must be followed by HOST:PORT: "
                "headroom agent --help shows how to write it"},
        Refused{"train --img 320 480 640",
                "[command line] --img must be followed by HEIGHT [WIDTH]: "
                "headroom train --help shows how to write it"},
        Refused{"train --cos-lr=false",
                "[command line] --cos-lr is a switch and takes no value: leave "
                "it out to have it off"},
        Refused{"train data=d.yaml model=yolov5n epochs=3 --rect imgsz=320 "
                "val=False lr0=0.1 --name train",
                "[command line] 'data=d.yaml' is written otherwise here: type "
                "headroom train --data d.yaml --cfg yolov5n --epochs 3 --rect "
                "--img 320 --noval --set hyp.lr0=0.1 --name train"},
        Refused{"mode=train task=detect data=d.yaml",
                "[command line] 'mode=train' is written otherwise here: type "
                "headroom train --data d.yaml"},
        Refused{"yolo detect train data=d.yaml",
                "[command line] 'yolo' is written otherwise here: type "
                "headroom train --data d.yaml"},
        Refused{"detect predict model=w.pt source=a.jpg",
                "[command line] 'predict' is written otherwise here: type "
                "headroom detect --weights w.pt --source a.jpg"},
        Refused{"train.py --img 640 --batch 8",
                "[command line] 'train.py' is written otherwise here: type "
                "headroom train --img 640 --batch 8"},
        Refused{
            "segment train data=d.yaml",
            "[command line] 'segment': Headroom detects boxes; "
            "segmentation, pose and classes are not trained: headroom train "
            "trains a detector of boxes"},
        Refused{"train task=pose data=d.yaml",
                "[command line] 'pose': Headroom detects boxes; segmentation, "
                "pose and classes are not trained: headroom train trains a "
                "detector of boxes"},
        Refused{
            "track source=a.mp4",
            "[command line] 'track': objects are not followed from picture "
            "to picture: headroom detect --source VIDEO finds boxes in each "
            "picture"},
        Refused{"train data=d.yaml tracker=botsort.yaml",
                "[config] --tracker: objects are not followed from picture to "
                "picture: leave it out"},
        Refused{"status --cordinator a:1",
                "[config] unknown flag --cordinator: did you mean "
                "'--coordinator'?"},
        Refused{
            "status --config-fd 3",
            "[config] unknown flag --config-fd: headroom status --help lists "
            "the flags"}));

TEST(CommandLine, SeveralValuesAndOtherFlagsInAnyOrder) {
  const configs::RunConfig config =
      config_of("--resume --img 320 480 --rect --epochs 3 --batch=8");
  EXPECT_EQ(config.resume, "latest");
  EXPECT_EQ(config.image_width, 480);
  EXPECT_TRUE(config.rect);
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.global_batch_size, 8);
}

TEST(CommandLine, CountsArePositive) {
  EXPECT_EQ(parse("agent").count_of("--processes"), 1);
  for (const std::string bad : {"0", "-1", "two", "1.5"}) {
    EXPECT_EQ(testing::refusal_of([&] {
                parse("agent --processes=" + bad).count_of("--processes");
              }),
              "[command line] --processes " + bad +
                  " is no count: give a whole number of at least 1");
  }
}

TEST(HelpText, ListsTheCommands) {
  const std::string text = general_help();
  for (const CommandSummary& command : command_summaries()) {
    EXPECT_THAT(text, HasSubstr("\n  " + command.name + " "));
  }
}

TEST(HelpText, TeachesWithExamplesDefaultsAndUnits) {
  const std::string text = command_help("train");
  EXPECT_THAT(text, HasSubstr("\nExamples\n  headroom train --data "));
  EXPECT_THAT(text, HasSubstr("  --batch, --batch-size N\n"));
  EXPECT_THAT(text, HasSubstr("default is 16 images."));
  EXPECT_THAT(text, Not(HasSubstr("--config-fd")));
  EXPECT_THAT(text, HasSubstr("  --freeze LAYERS\n"));
  EXPECT_THAT(text, HasSubstr("default is 0 layers."));
  for (const char* wrong :
       {"fraction.", " 1 processes", " 1 steps", " rows."}) {
    EXPECT_THAT(text, Not(HasSubstr(wrong))) << wrong;
  }
  for (const CommandSummary& command : command_summaries()) {
    EXPECT_EQ(command.examples.size(), 3u) << command.name;
    std::istringstream lines(command_help(command.name));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  headroom ")) continue;
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(HelpText, EveryExampleIsAccepted) {
  for (const CommandSummary& command : command_summaries()) {
    for (const std::string& example : command.examples) {
      const std::string words = example.substr(example.find("headroom ") + 9);
      EXPECT_NO_THROW(parse(words)) << example;
    }
  }
}

}  // namespace
}  // namespace headroom::cli
