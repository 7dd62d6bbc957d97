#include "parallel/base/progress.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace headroom {
namespace {

// A tool whose clock and terminal the test provides.
struct Told {
  std::string text;
  double now = 100;
  size_t columns = 60;
  ToolProgress::Output output(bool is_terminal) {
    return {.terminal = {
                .style = {.rewrites_lines = is_terminal, .is_unicode = true},
                .write = [this](std::string_view s) { text += s; },
                .columns = [this] { return columns; }},
            .now = [this] { return now; }};
  }
};

std::string told(bool is_terminal, double seconds_a_step, int64_t steps = 3) {
  Told told;
  {
    ToolProgress progress(told.output(is_terminal));
    for (const char* what : {"train", "val"}) {
      for (int64_t i = 0; i < steps; ++i) {
        told.now += seconds_a_step;
        progress.step(what, steps);
      }
    }
  }
  return told.text;
}

TEST(ToolProgress, OnATerminalIsOneBarThatGoesAway) {
  EXPECT_EQ(
      told(true, 0.06),
      "\r\x1b[Ktrain  66% |██████████████████▋         | 2/3 images  16.7/s"
      "\r\x1b[Kval  33% |██████████                    | 1/3 images"
      "\r\x1b[Kval 100% |██████████████████████████████| 3/3 images  25.0/s"
      "\r\x1b[K");
}

TEST(ToolProgress, ANarrowTerminalGetsAShortLine) {
  Told told;
  told.columns = 19;
  ToolProgress progress(told.output(true));
  told.now += 1;
  progress.reach("calibration", 9, 20);
  EXPECT_EQ(told.text, "\r\x1b[Kcalibration  45%…");
}

TEST(ToolProgress, WithoutATerminalIsALineForEachTenth) {
  EXPECT_EQ(told(false, 6),
            "train: 66 %, 2 of 3 images, 0.2/s, ETA 6s\n"
            "train: 100 %, 3 of 3 images, 0.2/s\n"
            "val: 33 %, 1 of 3 images\n"
            "val: 66 %, 2 of 3 images, 0.3/s, ETA 3s\n"
            "val: 100 %, 3 of 3 images, 0.2/s\n");
  EXPECT_EQ(told(false, 0.5), "");
  const std::string many = told(false, 1, 1000);
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 40)
      << "a minute without a tenth has a line too";
}

TEST(ToolProgress, WithoutATerminalAToolWithOwnLinesReportsOnlyAfterASilence) {
  Told told;
  ToolProgress::Output output = told.output(false);
  output.has_own_lines = true;
  ToolProgress progress(output);
  for (int64_t image = 1; image <= 20; ++image) {
    told.now += 9;
    progress.above([] {});
    progress.reach("detect", image, 21);
  }
  EXPECT_EQ(told.text, "");
  const auto look = [&](const std::string& what, int64_t known, int64_t last,
                        double seconds) {
    told.text.clear();
    progress.begin(what, known);
    for (int64_t tile = known + 1; tile <= last; ++tile) {
      told.now += seconds;
      progress.reach(what, tile, 100, "tile");
    }
    return told.text;
  };
  EXPECT_EQ(look("image 21/21", 40, 90, 0.5),
            "image 21/21: 60 %, 60 of 100 tiles, 2.0/s, ETA 20s\n"
            "image 21/21: 80 %, 80 of 100 tiles, 2.0/s, ETA 10s\n");
  progress.above([] {});
  EXPECT_EQ(look("seams", 0, 7, 20),
            "seams: 3 %, 3 of 100 tiles, 0.1/s, ETA 32m20s\n"
            "seams: 6 %, 6 of 100 tiles, 0.1/s, ETA 31m20s\n");
}

TEST(ToolProgress, LinesStandAboveTheBar) {
  Told told;
  told.columns = 0;
  ToolProgress progress(told.output(true));
  told.now += 1;
  progress.reach("frames", 5, 0);
  progress.above([&] { told.text += "a line\n"; });
  EXPECT_EQ(told.text,
            "\r\x1b[Kframes 5 images  5.0/s"
            "\r\x1b[Ka line\nframes 5 images  5.0/s");
}

TEST(ToolProgress, AnErrorTakesTheBarAway) {
  Told told;
  try {
    ToolProgress progress(told.output(true));
    told.now += 1;
    progress.step("train", 2);
    throw std::runtime_error("no such image");
  } catch (const std::runtime_error&) {
    EXPECT_TRUE(told.text.ends_with("\r\x1b[K")) << told.text;
  }
}

}  // namespace
}  // namespace headroom
