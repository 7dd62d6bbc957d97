#include "parallel/base/progress.h"

#include <gtest/gtest.h>

#include "parallel/base/utf8.h"

namespace headroom {
namespace {

constexpr TerminalStyle kUnicode = {.rewrites_lines = true, .is_unicode = true};
constexpr TerminalStyle kAscii = {.rewrites_lines = true};

// The progress of work that has taken `seconds` so far.
Progress mean_progress(const std::string& label, int64_t done, int64_t total,
                       double seconds) {
  Pace pace;
  pace.note(0, 10);
  pace.note(done, 10 + seconds);
  Progress progress = pace.of(total);
  progress.label = label;
  return progress;
}

const Progress kHalf = mean_progress("train", 90, 200, 3);

TEST(Pace, CountsFromTheFirstNote) {
  Pace pace;
  EXPECT_FALSE(pace.seconds_left(40));
  pace.note(10, 100);  // as a resumed run starts
  EXPECT_FALSE(pace.seconds_left(40));
  pace.note(10, 101);
  EXPECT_EQ(pace.per_second(), 0);
  pace.note(20, 105);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(40), 10.0);
  EXPECT_FALSE(pace.seconds_left(0));
  pace.note(40, 115);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(40), 0.0);
}

TEST(Pace, AfterARecoveryTheRateIsThatOfAllStepsTaken) {
  Pace pace;
  pace.note(100, 0);  // as a resumed run starts
  pace.note(110, 10);
  pace.note(80, 20);  // as if the run restarted from an older checkpoint
  EXPECT_DOUBLE_EQ(pace.per_second(), 0.5);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(100), 40.0);
  pace.note(90, 30);
  pace.note(100, 40);
  EXPECT_DOUBLE_EQ(pace.per_second(), 0.75);
  pace.note(95, 40);
  EXPECT_DOUBLE_EQ(pace.per_second(), 0.75);
  pace.note(101, 42);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(101), 0.0);
  EXPECT_NEAR(pace.per_second(), 36.0 / 42, 1e-9);
}

TEST(Progress, BytesAreShownAsSizes) {
  const Progress half = {.label = "w.pt",
                         .done = 2 << 20,
                         .total = 4 << 20,
                         .noun = kBytes,
                         .per_second = 1 << 20,
                         .seconds_left = 2};
  EXPECT_EQ(progress_words(half),
            "w.pt: 50 %, 2 MiB of 4 MiB, 1 MiB/s, ETA 2s");
  EXPECT_EQ(progress_bar(half, 60, kAscii),
            "w.pt  50% [#########..........] 2 MiB/4 MiB  1 MiB/s  ETA 2s");
  EXPECT_EQ(progress_words({.label = "w.pt", .done = 2 << 20, .noun = kBytes}),
            "w.pt: 2 MiB");
}

TEST(ProgressBar, OfEightyAndOfAHundredAndSixtyColumns) {
  EXPECT_EQ(progress_bar(kHalf, 79, kUnicode),
            "train  45% |█████████████▌                | 90/200 images  30.0/s"
            "  ETA 4s");
  EXPECT_EQ(progress_bar(kHalf, 159, kUnicode),
            progress_bar(kHalf, 79, kUnicode));
  EXPECT_EQ(progress_bar(kHalf, 0, kUnicode),
            progress_bar(kHalf, 79, kUnicode));
}

TEST(ProgressBar, ANarrowTerminalGetsLessAndNeverALongerLine) {
  EXPECT_EQ(progress_bar(kHalf, 60, kUnicode),
            "train  45% |███████▋         | 90/200 images  30.0/s  ETA 4s");
  EXPECT_EQ(progress_bar(kHalf, 40, kUnicode),
            "train  45% |█████▊       | 90/200 images");
  EXPECT_EQ(progress_bar(kHalf, 20, kUnicode), "train  45%  90/200…");
  for (size_t columns = 1; columns <= 100; ++columns) {
    EXPECT_LE(display_width(progress_bar(kHalf, columns, kUnicode)), columns);
    EXPECT_LE(display_width(progress_bar(kHalf, columns, kAscii)), columns);
  }
}

TEST(ProgressBar, AnotherLocaleHasAsciiAlone) {
  EXPECT_EQ(progress_bar(kHalf, 79, kAscii),
            "train  45% [#############.................] 90/200 images  30.0/s"
            "  ETA 4s");
  for (size_t columns = 1; columns <= 100; ++columns) {
    for (const char c : progress_bar(kHalf, columns, kAscii)) {
      EXPECT_LT(static_cast<unsigned char>(c), 0x80);
    }
  }
}

TEST(ProgressBar, AHundredPerCentIsAllOfIt) {
  EXPECT_EQ(progress_bar(mean_progress("val", 999, 1000, 0), 40, kUnicode),
            "val  99% |████████████▉| 999/1000 images");
  EXPECT_EQ(progress_bar(mean_progress("val", 1000, 1000, 10), 79, kUnicode),
            "val 100% |██████████████████████████████| 1000/1000 images  "
            "100.0/s");
}

TEST(ProgressBar, WithoutATotalThereIsACount) {
  EXPECT_EQ(progress_bar(mean_progress("video 1", 7, 0, 2), 79, kUnicode),
            "video 1 7 images  3.5/s");
}

TEST(ProgressBar, ColoursAreOptionalAndTakeNoColumns) {
  TerminalStyle style = kAscii;
  EXPECT_EQ(bar_cells(0.5, 4, style), "[##..]");
  style.has_colours = true;
  EXPECT_EQ(bar_cells(0.5, 4, style), "[\033[36m##\033[0m..]");
  EXPECT_EQ(bar_cells(1, 4, style), "[\033[32m####\033[0m]");
}

TEST(ProgressWords, ForLogs) {
  EXPECT_EQ(progress_words(kHalf),
            "train: 45 %, 90 of 200 images, 30.0/s, ETA 4s");
  EXPECT_EQ(progress_words(mean_progress("val", 1, 1, 0)),
            "val: 100 %, 1 of 1 image");
}

TEST(WholeSeconds, SecondsMinutesOrHours) {
  EXPECT_EQ(whole_seconds(7.6), "8s");
  EXPECT_EQ(whole_seconds(59.6), "1m0s");
  EXPECT_EQ(whole_seconds(7384), "2h3m");
  EXPECT_EQ(eta_words(0.4), "");
  EXPECT_EQ(eta_words(std::nullopt), "");
}

}  // namespace
}  // namespace headroom
