// Anchors that are found from the boxes are part of a run's definition. They
// are the same on every rank and under every layout, are stored in the weights,
// stay the same after --resume, and are used by runs that fine-tune these
// weights.
//
// The tests run real processes. The drawn shapes fit the shipped anchors at the
// usual threshold of 4, but not at the threshold of 1.3 that is used here.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTight = {"--set", "hyp.anchor_t=1.3"};
constexpr const char* kRun = "runs/train/exp";

// The value of a key of run.yaml, without its quotes.
std::string value_of(const fs::path& folder, const std::string& key) {
  std::ifstream file(folder / kRun / "run.yaml");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ": ")) continue;
    std::string value = line.substr(key.size() + 2);
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    return value;
  }
  ADD_FAILURE() << "no " << key << " in run.yaml of " << folder;
  return "";
}

std::vector<std::string> autoanchor_events(const fs::path& folder) {
  std::vector<std::string> reasons;
  for (const Json& line : read_lines(folder / kRun / "events.jsonl")) {
    if (line.at("event") == "autoanchor") reasons.push_back(line.at("reason"));
  }
  return reasons;
}

// model.24.anchors of a float32 safetensors file, in cells.
std::vector<float> stored_anchors(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  in.read(header.data(), static_cast<std::streamsize>(length));
  const Json entry = Json::parse(header).at("model.24.anchors");
  EXPECT_EQ(entry.at("dtype"), "F32");
  std::vector<float> values(18);
  in.seekg(static_cast<std::streamoff>(8 + length) +
           entry.at("data_offsets")[0].get<std::streamoff>());
  in.read(reinterpret_cast<char*>(values.data()), 18 * sizeof(float));
  return values;
}

// Converts "1,2 3,4; 5,6 ..." to cells of strides 8, 16 and 32.
std::vector<float> in_cells(const std::string& anchors) {
  std::vector<float> cells;
  double stride = 8;
  std::string word;
  for (const char c : anchors + ";") {
    if (c != ',' && c != ' ' && c != ';') {
      word += c;
      continue;
    }
    if (!word.empty())
      cells.push_back(static_cast<float>(std::stod(word) / stride));
    word.clear();
    if (c == ';') stride *= 2;
  }
  return cells;
}

TEST(AutoAnchor, IsTheSameUnderEveryLayout) {
  const fs::path folder = fresh_folder();
  const auto command = joined(train_fp64("8"), kTight);
  const std::vector<std::string> steps = {"--max-steps", "6"};
  const auto one =
      train_in(folder / "one", command, joined(steps, {"--processes", "1"}));
  ASSERT_EQ(one.size(), 6u);
  const std::string anchors = value_of(folder / "one", "anchors");
  EXPECT_NE(anchors, "");
  const auto events = autoanchor_events(folder / "one");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(
      events[0].find("; replaced by 9 found from the boxes, which match "),
      std::string::npos)
      << events[0];
  EXPECT_TRUE(events[0].ends_with(anchors)) << events[0];

  const std::vector<std::pair<std::string, std::vector<std::string>>> layouts =
      {{"data2", {"--layout", "data=2"}},
       {"pipeline2",
        {"--layout", "pipeline=2", "--bn-group", "8", "--micro-batch", "8"}},
       {"zero3", {"--layout", "data=2", "--zero", "3"}}};
  for (const auto& [name, flags] : layouts) {
    SCOPED_TRACE(name);
    const auto other = train_in(folder / name, command, joined(steps, flags));
    expect_equivalent(one, other);
    EXPECT_EQ(value_of(folder / name, "anchors"), anchors);
  }
  // Without the found anchors the losses are different.
  const auto kept =
      train_in(folder / "kept", command, joined(steps, {"--noautoanchor"}));
  EXPECT_EQ(value_of(folder / "kept", "anchors"), "");
  EXPECT_TRUE(autoanchor_events(folder / "kept").empty());
  EXPECT_GT(relative(one[0], kept[0], "loss"), 1e-3);
}

TEST(AutoAnchor, ResumesBitForBitAndGoesWithTheWeights) {
  const fs::path folder = fresh_folder();
  const auto command = joined(train_shapes("8", {"--epochs", "2", "--noval"}),
                              joined(kTight, {"--processes", "2"}));
  const auto whole = train_in(folder / "whole", command, {});
  auto parts = train_in(folder / "parts", command, {"--max-steps", "6"});
  ASSERT_EQ(parts.size(), 6u);
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   (folder / "parts" / kRun).string(), "--max-steps", "0"},
                  folder / "parts");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  parts = read_lines(folder / "parts" / kRun / "steps.jsonl");
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t step = 0; step < whole.size(); ++step) {
    EXPECT_EQ(whole[step].at("loss").dump(), parts[step].at("loss").dump());
  }
  EXPECT_EQ(autoanchor_events(folder / "parts").size(), 1u);

  const std::string anchors = value_of(folder / "parts", "anchors");
  const fs::path weights = folder / "parts" / kRun / "weights/last.safetensors";
  EXPECT_EQ(stored_anchors(weights), in_cells(anchors));

  // The anchors cannot change on resume, since the committed steps were trained
  // with them.
  const ProgramResult refused =
      run_program({program("headroom"), "train", "--resume",
                   (folder / "parts" / kRun).string(), "--epochs", "3", "--set",
                   "anchors=1,2 3,4 5,6; 7,8 9,10 11,12; 13,14 15,16 17,18"},
                  folder);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("anchors was " + anchors), std::string::npos)
      << refused.err;

  // Weights that are given without --cfg bring their anchors along; with --cfg,
  // the anchors of the model file are used.
  auto tune = train_shapes("8", {"--epochs", "1", "--noval", "--max-steps", "1",
                                 "--noautoanchor", "--weights", weights});
  const auto with_cfg = tune;
  for (size_t i = 0; i + 1 < tune.size(); ++i) {
    if (tune[i] != "--cfg") continue;
    tune.erase(tune.begin() + static_cast<std::ptrdiff_t>(i),
               tune.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    break;
  }
  train_in(folder / "tuned", tune, {});
  EXPECT_EQ(in_cells(value_of(folder / "tuned", "anchors")), in_cells(anchors));
  train_in(folder / "with_cfg", with_cfg, {});
  EXPECT_EQ(value_of(folder / "with_cfg", "anchors"), "");
}

TEST(AutoAnchor, KeepsFittingAnchorsToTheBit) {
  const fs::path folder = fresh_folder();
  const auto command = train_fp64("8");
  const std::vector<std::string> steps = {"--max-steps", "2"};
  const auto judged = train_in(folder / "judged", command, steps);
  const auto not_judged = train_in(folder / "not_judged", command,
                                   joined(steps, {"--noautoanchor"}));
  ASSERT_EQ(judged.size(), 2u);
  EXPECT_EQ(judged[1].at("loss").dump(), not_judged[1].at("loss").dump());
  EXPECT_EQ(value_of(folder / "judged", "anchors"), "");
  const auto events = autoanchor_events(folder / "judged");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].ends_with(": kept, more than 0.98 is enough"))
      << events[0];
}

TEST(AutoAnchor, RefusesAnotherNumberOfAnchors) {
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      run_program(train_shapes("8", {"--set", "hyp.anchors=5"}), folder);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("[config] hyp.anchors is 5, but yolov5n has 3 "
                            "anchors per level and keeps that number: use "
                            "--set hyp.anchors=3, or a --cfg with another "
                            "number"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace headroom::testing
