// The labels of the data set bound the bytes of a plan: crowded images train
// within the plan that was made for them, a resumed run keeps its plan's
// assumptions, and --batch -1 tries no more images than the data set has.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

// The drawn images with other labels: up to `most` boxes an image, so large
// that the augmentation keeps them.
std::string crowded_data(const fs::path& folder, int most) {
  fs::copy(fs::path(shapes_data()).parent_path(), folder / "data",
           fs::copy_options::recursive);
  int image = 0;
  for (const auto& entry :
       fs::directory_iterator(folder / "data/labels/train")) {
    std::ofstream labels(entry.path());
    const int boxes = image++ % 4 == 0 ? most : most / 4;
    for (int box = 0; box < boxes; ++box) {
      labels << box % 3 << " " << 0.3 + 0.4 * box / boxes << " "
             << 0.3 + 0.4 * (box * 7 % boxes) / boxes << " 0.4 0.5\n";
    }
  }
  return (folder / "data/data.yaml").string();
}

std::vector<std::string> train(const std::string& data,
                               const std::vector<std::string>& more) {
  std::vector<std::string> command = {
      program("headroom"), "train", "--data", data,        "--cfg",
      "yolov5n",           "--img", "96",     "--workers", "1",
      "--threads",         "1"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::string line_of(const fs::path& file, const std::string& key) {
  const std::string text = text_of(file);
  const size_t begin = text.find(key);
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find('\n', begin) - begin);
}

// Expects that no step needs more than planned, and that no attempt fails.
void expect_within_plan(const fs::path& run, size_t num_steps) {
  const int64_t bound = read_json(run / "plan.json")
                            .at("predicted_peak_bytes")
                            .at(0)
                            .get<int64_t>();
  const std::vector<Json> steps = read_lines(run / "steps.jsonl");
  EXPECT_EQ(steps.size(), num_steps);
  for (const Json& step : steps) {
    const Json& memory = step.at("memory").at(0);
    EXPECT_LE(memory.at("predicted_peak_bytes"), bound) << step.at("step");
    EXPECT_LE(memory.at("measured_peak_bytes"),
              memory.at("predicted_peak_bytes"));
  }
  for (const Json& event : read_lines(run / "events.jsonl")) {
    EXPECT_NE(event.at("event"), "label_bound") << event;
    EXPECT_NE(event.at("event"), "out_of_memory") << event;
  }
}

TEST(LabelBound, CrowdedImagesTrainWithinTheirPlan) {
  for (const int most : {12, 400}) {
    const fs::path folder = fresh_folder() / std::to_string(most);
    fs::create_directories(folder);
    const std::string data = crowded_data(folder, most);
    const ProgramResult trained = run_program(
        train(data,
              {"--batch", "8", "--memory-limit", "320MiB", "--max-steps", "3"}),
        folder);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_NE(trained.err.find("boxes in a micro-batch, by the data set's "
                               "labels"),
              std::string::npos)
        << trained.err;
    const fs::path run = folder / "runs/train/exp";
    expect_within_plan(run, 3);
    const std::string counts = line_of(run / "run.yaml", "label_counts");
    EXPECT_EQ(counts, "label_counts: \"" + std::to_string(most / 4) + "x27 " +
                          std::to_string(most) + "x10\"");

    // The recorded bound is kept on resume, even if the labels now give another
    // one.
    std::string config = text_of(run / "run.yaml");
    const std::string other = "label_counts: \"" + std::to_string(most / 4) +
                              "x26 " + std::to_string(most) + "x11\"";
    config.replace(config.find(counts), counts.size(), other);
    std::ofstream(run / "run.yaml") << config;
    const ProgramResult resumed =
        run_program({program("headroom"), "train", "--resume", run.string(),
                     "--max-steps", "4"},
                    folder);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(line_of(run / "run.yaml", "label_counts"), other);
    expect_within_plan(run, 4);
  }
}

// The plan includes pasted objects, and the images have them.
TEST(LabelBound, PastedObjectsTrainWithinTheirPlan) {
  const fs::path folder = fresh_folder();
  const std::vector<std::string> flags = {
      "--batch",     "8", "--memory-limit", "320MiB",
      "--max-steps", "3", "--set",          "hyp.copy_paste=1"};
  const ProgramResult trained =
      run_program(train(outlined_shapes_data(), flags), folder);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const fs::path run = folder / "runs/train/exp";
  EXPECT_NE(line_of(run / "run.yaml", "label_counts").find(" outlines="),
            std::string::npos);
  expect_within_plan(run, 3);
  EXPECT_EQ(text_of(run / "data_report.txt").find("copy_paste"),
            std::string::npos);

  // If labels are boxes without outlines, there is nothing to paste. This is
  // reported once, and every bit is the same as without copy_paste.
  std::vector<std::string> plain = flags;
  plain.back() = "hyp.copy_paste=0";
  std::string lines;
  for (const auto& [name, words] :
       {std::pair{"asked", flags}, {"plain", plain}}) {
    fs::create_directories(folder / name);
    const ProgramResult boxes =
        run_program(train(shapes_data(), words), folder / name);
    ASSERT_EQ(boxes.exit_code, 0) << boxes.err;
    const fs::path exp = folder / name / "runs/train/exp";
    const bool is_said =
        text_of(exp / "data_report.txt")
            .find(
                "hyp.copy_paste 1 changes nothing: no label of train is a "
                "polygon") != std::string::npos;
    EXPECT_EQ(is_said, words == flags);
    std::string losses;
    for (const Json& step : read_lines(exp / "steps.jsonl")) {
      losses +=
          step.at("loss").dump() + " " + step.at("grad_norm").dump() + " ";
    }
    if (lines.empty()) lines = losses;
    EXPECT_EQ(losses, lines);
  }
}

TEST(LabelBound, ThePlanStatesItsAssumptions) {
  const ProgramResult plan = run_program(
      {program("headroom"), "plan", "--data", shapes_data(), "--json", "--cfg",
       "yolov5n", "--img", "96", "--memory-limit", "2GiB", "--batch", "-1"},
      fresh_folder());
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json json = Json::parse(plan.out);
  EXPECT_EQ(json.at("global_batch_size"), 37) << "all images that there are";
  EXPECT_NE(plan.err.find("the data set has no more than 37 images"),
            std::string::npos)
      << plan.err;
  EXPECT_EQ(json.at("labels").at("images"), 37);
  EXPECT_GT(json.at("labels").at("boxes_per_micro_batch"), 0);
  EXPECT_FALSE(json.at("labels").contains("assumed_boxes_per_image"));
}

TEST(LabelBound, FaultsInTheDataAreReported) {
  const fs::path folder = fresh_folder();
  fs::create_directories(folder / "images");
  std::ofstream(folder / "data.yaml")
      << "train: images\nval: images\nnames: [a]\n";
  const ProgramResult plan =
      run_program({program("headroom"), "plan", "--data", "data.yaml"}, folder);
  EXPECT_EQ(plan.exit_code, 4);
  EXPECT_EQ(plan.err.find("[data] no image to train on is named in "), 0U)
      << plan.err;
  EXPECT_EQ(std::count(plan.err.begin(), plan.err.end(), '\n'), 1);
}

}  // namespace
}  // namespace headroom::testing
