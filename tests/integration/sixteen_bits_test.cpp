// 16-bit images whose objects are brighter than the ground by 1/1000 of the
// range. With `range` in data.yaml a network detects them; after conversion to
// 8 bits it cannot. The layout, a kill and a resume change no bit, and the
// weights record how their pixels are scaled.
//
// The tests run real processes on drawn images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kSide = 96;
// In 8 bits, ground, noise and objects all become (value + 128) / 257 = 117.
constexpr int kGround = 30'035, kObject = kGround + 65, kNoise = 8;

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  int below(int bound) {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<int>((state_ >> 8) % static_cast<uint32_t>(bound));
  }

 private:
  uint32_t state_;
};

// Writes an uncompressed gray TIFF in one strip, without the project's writer.
void write_tiff(const fs::path& file, const std::vector<uint16_t>& pixels) {
  constexpr uint16_t kShort = 3, kLong = 4;
  std::string bytes = "II*";
  const auto number = [&bytes](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(value >> (8 * i) & 255));
    }
  };
  number(0, 1);
  const auto count = static_cast<uint32_t>(2 * pixels.size());
  number(8 + count, 4);
  for (const uint16_t pixel : pixels) number(pixel, 2);
  struct Entry {
    uint16_t tag, type;
    uint32_t value;
  };
  const std::vector<Entry> entries = {
      {256, kLong, kSide}, {257, kLong, kSide}, {258, kShort, 16},
      {259, kShort, 1},    {262, kShort, 1},    {273, kLong, 8},
      {277, kShort, 1},    {278, kLong, kSide}, {279, kLong, count}};
  number(static_cast<uint32_t>(entries.size()), 2);
  for (const Entry& entry : entries) {
    number(entry.tag, 2);
    number(entry.type, 2);
    number(1, 4);
    number(entry.value, 4);
  }
  number(0, 4);
  std::ofstream(file, std::ios::binary) << bytes;
}

// Draws one or two bright rectangles at random places.
void write_image(const fs::path& folder, const std::string& split, int index) {
  Random random(static_cast<uint32_t>(index) + (split == "val" ? 1000 : 0));
  std::vector<uint16_t> pixels(kSide * kSide);
  for (uint16_t& pixel : pixels) {
    pixel = static_cast<uint16_t>(kGround + random.below(2 * kNoise) - kNoise);
  }
  const std::string name = std::to_string(100 + index);
  std::ofstream labels(folder / "labels" / split / (name + ".txt"));
  const int objects = 1 + random.below(2);
  for (int i = 0; i < objects; ++i) {
    const int w = 18 + random.below(18), h = 18 + random.below(18);
    // The first object is on the left, the second on the right, so they do not
    // overlap.
    const int left = i == 0 ? random.below(kSide / 2 - w / 2) - w / 4
                            : kSide / 2 + w / 4 + random.below(kSide / 2 - w);
    const int x = std::max(0, std::min(left, kSide - w));
    const int y = random.below(kSide - h);
    for (int row = y; row < y + h; ++row) {
      for (int column = x; column < x + w; ++column) {
        pixels[row * kSide + column] =
            static_cast<uint16_t>(kObject + random.below(2 * kNoise) - kNoise);
      }
    }
    labels << "0 " << (x + w / 2.0) / kSide << ' ' << (y + h / 2.0) / kSide
           << ' ' << static_cast<double>(w) / kSide << ' '
           << static_cast<double>(h) / kSide << '\n';
    if (x + w > kSide / 2 - 2) break;
  }
  write_tiff(folder / "images" / split / (name + ".tif"), pixels);
}

// Returns the folder, which has data.yaml and deep.yaml; the latter has a
// range.
fs::path write_data(const fs::path& folder, int train, int val) {
  for (const char* split : {"train", "val"}) {
    fs::create_directories(folder / "images" / split);
    fs::create_directories(folder / "labels" / split);
    const bool trains = std::string(split) == "train";
    for (int i = 0; i < (trains ? train : val); ++i) {
      write_image(folder, split, i);
    }
  }
  const std::string lines =
      "train: images/train\nval: images/val\nnames: [faint]\n";
  std::ofstream(folder / "data.yaml") << lines;
  std::ofstream(folder / "deep.yaml")
      << lines << "range: {percentiles: [1, 99]}\n";
  return folder;
}

std::vector<std::string> command(const fs::path& data) {
  return {
      program("headroom"), "train", "--data",    data,      "--cfg",
      "yolov5n",           "--img", "96",        "--batch", "8",
      "--threads",         "1",     "--workers", "1",       "--noautoanchor"};
}

class SixteenBits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = write_data(
        fs::path(HEADROOM_BUILD_DIR) / "tests/runs/sixteen_bits", 24, 6);
    ASSERT_EQ(train("two", {"--processes", "2"}).exit_code, 0);
  }
  static void TearDownTestSuite() {
    if (!::testing::UnitTest::GetInstance()->Failed()) fs::remove_all(folder_);
  }

  // Six steps with micro-batches of three images.
  static std::vector<std::string> words(const std::string& name,
                                        const std::vector<std::string>& more) {
    return joined(joined(command(folder_ / "deep.yaml"),
                         {"--epochs", "2", "--precision", "fp64", "--name",
                          name, "--exist-ok"}),
                  more);
  }
  static ProgramResult train(const std::string& name,
                             const std::vector<std::string>& more) {
    return run_program(words(name, more), folder_);
  }
  static fs::path run(const std::string& name) {
    return folder_ / "runs/train" / name;
  }
  static std::vector<Json> steps(const std::string& name) {
    return read_lines(run(name) / "steps.jsonl");
  }
  // Writes a copy of data.yaml with the given range to the file `name`.
  static void write_range(const std::string& name, const std::string& range) {
    const std::string text =
        text_of(folder_ / "data.yaml") + "range: " + range + "\n";
    std::ofstream(folder_ / name) << text;
  }
  // The line "value_range: ..." in the run.yaml of the run "two".
  static std::string range_line() {
    const std::string yaml = text_of(run("two") / "run.yaml");
    const size_t at = yaml.find("value_range: ");
    EXPECT_NE(at, std::string::npos);
    return yaml.substr(at, yaml.find('\n', at) - at);
  }
  static std::string weights() {
    return run("two") / "weights/last.safetensors";
  }

  inline static fs::path folder_;
};

void expect_near(const std::vector<Json>& steps,
                 const std::vector<Json>& expected) {
  ASSERT_LE(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const double loss = expected[i].at("loss");
    EXPECT_NEAR(steps[i].at("loss").get<double>(), loss, 1e-9 * loss) << i;
  }
}

TEST_F(SixteenBits, EveryLayoutTrainsTheSame) {
  ASSERT_EQ(steps("two").size(), 6u);
  ASSERT_EQ(train("one", {"--processes", "1", "--noval"}).exit_code, 0);
  expect_near(steps("one"), steps("two"));
  ASSERT_EQ(train("split", {"--layout", "spatial=2", "--max-steps", "3",
                            "--noval", "--noplots"})
                .exit_code,
            0);
  expect_near(steps("split"), steps("two"));
}

TEST_F(SixteenBits, AKillAndAResumeChangeNoBit) {
  Program killed(words("killed", {"--processes", "2"}), folder_);
  ASSERT_TRUE(wait_for_lines(run("killed") / "steps.jsonl", 2, 60));
  const auto workers = descendants(killed.pid(), "headroom-worker");
  ASSERT_FALSE(workers.empty());
  kill(workers.back(), SIGKILL);
  ASSERT_EQ(killed.join().exit_code, 0);
  ASSERT_EQ(train("parts", {"--processes", "2", "--max-steps", "2"}).exit_code,
            0);
  // The range cannot change on resume: the run keeps its first one.
  const std::string before = text_of(folder_ / "deep.yaml");
  write_range("deep.yaml", "[0, 65535]");
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume", run("parts"),
                   "--max-steps", "6"},
                  folder_);
  std::ofstream(folder_ / "deep.yaml") << before;
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out + resumed.err,
              HasSubstr("is not used: this run has the range"));
  for (const char* name : {"killed", "parts"}) {
    const auto all = steps(name);
    ASSERT_EQ(all.size(), 6u) << name;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].at("loss").dump(), steps("two")[i].at("loss").dump())
          << name << " " << i;
    }
  }
}

// Percentiles are measured once; the run and the weights record the numbers.
TEST_F(SixteenBits, TheMeasuredRangeGoesWithTheWeights) {
  std::string range = range_line().substr(range_line().find(' ') + 1);
  std::erase(range, '"');
  double low = 0, high = 0;
  ASSERT_EQ(std::sscanf(range.c_str(), "%lf,%lf", &low, &high), 2) << range;
  EXPECT_GE(low, kGround - kNoise);
  EXPECT_LE(low, kGround + kNoise);
  EXPECT_GT(high, kObject - kNoise);
  EXPECT_LE(high, kObject + kNoise);
  EXPECT_THAT(text_of(weights()), HasSubstr("\"value_range\":\"" + range));
  const ProgramResult exported = run_program(
      {program("headroom"), "export", "--weights", weights(), "--img", "96",
       "--include", "onnx", "--output", folder_ / "faint"},
      folder_);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(text_of(folder_ / "faint.onnx"), HasSubstr(range));

  const auto judged = [&](const std::string& data,
                          const std::vector<std::string>& more) {
    const ProgramResult result = run_program(
        joined({program("headroom"), "val", "--data", folder_ / data,
                "--weights", weights(), "--threads", "1", "--noplots"},
               more),
        folder_);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  };
  // The range in the weights is used, even if the data set has another one.
  const auto figures_of = [](const ProgramResult& result) {
    const size_t begin = result.out.find("mAP50");
    EXPECT_NE(begin, std::string::npos) << result.out;
    return result.out.substr(begin, result.out.find('\n', begin) - begin);
  };
  const auto agreed = figures_of(judged("deep.yaml", {"--name", "deep"}));
  write_range("other.yaml", "[0, 65535]");
  const ProgramResult other = judged("other.yaml", {"--name", "other"});
  EXPECT_EQ(figures_of(other), agreed);
  judged("other.yaml", {"--name", "tiled", "--tile", "64"});
  EXPECT_THAT(other.out + other.err,
              HasSubstr("is not used: " + weights() +
                        " was trained with the range " + range));
  const ProgramResult found = run_program(
      {program("headroom"), "detect", "--weights", weights(), "--source",
       folder_ / "images/val", "--conf-thres", "0.001", "--name", "found"},
      folder_);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_TRUE(fs::exists(folder_ / "runs/detect/found/100.jpg"));
}

TEST_F(SixteenBits, AWorkerOnItsOwnMeasuresTheSameRange) {
  std::string yaml = text_of(run("two") / "run.yaml");
  const std::string measured = range_line();
  yaml.erase(yaml.find(measured), measured.size());
  const std::string two = "processes: 2";
  ASSERT_NE(yaml.find(two), std::string::npos);
  yaml.replace(yaml.find(two), two.size(), "processes: 1");
  std::ofstream(folder_ / "solo.yaml") << yaml;
  const ProgramResult solo =
      run_program({program("headroom-worker"), "--standalone",
                   folder_ / "solo.yaml", "--run-directory", run("solo")},
                  folder_);
  ASSERT_EQ(solo.exit_code, 0) << solo.err;
  EXPECT_THAT(text_of(run("solo") / "run.yaml"), HasSubstr(measured));
  expect_near(steps("solo"), steps("two"));
}

TEST_F(SixteenBits, TheStartReportsHowTheyAreHandled) {
  EXPECT_THAT(text_of(run("two") / "data_report.txt"),
              HasSubstr("hyp.hsv_h 0.015, hyp.hsv_s 0.7, hyp.hsv_v 0.4 change "
                        "nothing: they are about colours of 8 bits"));
  const auto start = [&](const std::string& data,
                         const std::vector<std::string>& more) {
    return run_program(
        joined(joined(command(folder_ / data), {"--max-steps", "1", "--noval",
                                                "--noplots", "--exist-ok"}),
               more),
        folder_);
  };
  ASSERT_EQ(start("data.yaml", {"--name", "reduced"}).exit_code, 0);
  EXPECT_THAT(
      text_of(run("reduced") / "data_report.txt"),
      HasSubstr("have more than 8 bits and are reduced to 8: write range: "
                "[low, high] into"));
  write_range("four.yaml", "[[0, 1], [0, 1], [0, 1], [0, 1]]");
  const ProgramResult four = start("four.yaml", {"--name", "four"});
  EXPECT_EQ(four.exit_code, 2) << four.out;
  EXPECT_THAT(four.err,
              HasSubstr("range has 4 pairs, but images have 3 bands"));
  write_range("wrong.yaml", "[9, 1]");
  const ProgramResult wrong = start("wrong.yaml", {"--name", "wrong"});
  EXPECT_EQ(wrong.exit_code, 2) << wrong.out;
  EXPECT_THAT(wrong.err, HasSubstr("low has to be below high"));
}

TEST_F(SixteenBits, TilesAndPacksKeepThem) {
  const std::vector<std::vector<std::string>> makers = {
      {"tile", "--size", "64", "--min-visible", "0.2"}, {"pack"}};
  for (const std::vector<std::string>& maker : makers) {
    const fs::path made = folder_ / maker.front();
    const ProgramResult result =
        run_program(joined(joined({program("headroom")}, maker),
                           {"--data", folder_ / "deep.yaml", "--output", made}),
                    folder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(text_of(made / "data.yaml"),
                HasSubstr("range: {percentiles: [1, 99]}\n"));
  }
  const ProgramResult packed =
      run_program(joined(command(folder_ / "pack"),
                         {"--epochs", "2", "--precision", "fp64", "--processes",
                          "2", "--name", "packed", "--exist-ok"}),
                  folder_);
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const auto all = steps("packed");
  ASSERT_EQ(all.size(), 6u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].at("loss").dump(), steps("two")[i].at("loss").dump());
  }
}

// Compares with onnxruntime, which gets the same files, scaled with the range
// in the exported network.
void expect_boxes_of_onnx(const fs::path& folder, const fs::path& weights) {
  const fs::path network = folder / "faint.onnx";
  const ProgramResult exported =
      run_program({program("headroom"), "export", "--weights", weights, "--img",
                   "96", "--include", "onnx", "--output", folder / "faint"},
                  folder);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const ProgramResult found = run_program(
      {program("headroom"), "detect", "--weights", weights, "--source",
       folder / "images/val", "--save-txt", "--save-conf", "--name", "found"},
      folder);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const fs::path source = HEADROOM_SOURCE_DIR;
  const fs::path own = source / ".deps/venv/bin/python";
  const ProgramResult compared =
      run_program({fs::exists(own) ? own.string() : "python3",
                   source / "tests/integration/onnx_boxes.py", network,
                   folder / "images/val", folder / "runs/detect/found/labels"},
                  folder);
  if (compared.exit_code == 77) {
    std::printf("onnxruntime is not installed: nothing is compared\n");
    return;
  }
  ASSERT_EQ(compared.exit_code, 0) << compared.out << compared.err;
  int boxes = 0;
  double worst = 1;
  ASSERT_EQ(std::sscanf(compared.out.c_str(), "%d %lf", &boxes, &worst), 2);
  std::printf("onnxruntime: %d boxes, worst deviation %g\n", boxes, worst);
  EXPECT_GT(boxes, 40);
  EXPECT_LT(worst, 0.02);
}

// A short training runs twice: with the range in 16 bits, and without it in 8.
TEST(SlowSixteenBits, FaintObjectsAreFoundOnlyInSixteenBits) {
  const fs::path folder = write_data(fresh_folder(), 96, 48);
  const auto map_of = [&](const std::string& data) {
    const ProgramResult result = run_program(
        joined(command(folder / data),
               {"--epochs", "80", "--name", data, "--noplots", "--batch", "16",
                "--optimizer", "AdamW", "--set", "hyp.lr0=0.002", "--set",
                "hyp.warmup_epochs=1", "--set", "hyp.mosaic=0.3"}),
        folder);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const ProgramResult judged = run_program(
        {program("headroom"), "val", "--data", folder / data, "--weights",
         folder / "runs/train" / data / "weights/best.safetensors", "--name",
         data, "--threads", "1", "--noplots"},
        folder);
    EXPECT_EQ(judged.exit_code, 0) << judged.err;
    const Json figures = read_json(folder / "runs/val" / data / "results.json");
    const double map50 = figures.at("map50");
    std::printf("%s: mAP50 %.4f\n", data.c_str(), map50);
    return map50;
  };
  EXPECT_GE(map_of("deep.yaml"), 0.9);
  expect_boxes_of_onnx(
      folder, folder / "runs/train/deep.yaml/weights/best.safetensors");
  // A network that cannot see the objects learns only how likely an object is
  // at each position, so its mAP is low.
  EXPECT_LE(map_of("data.yaml"), 0.1);
}

}  // namespace
}  // namespace headroom::testing
