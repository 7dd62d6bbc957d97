// Images that are too large for one process are split over several ranks. The
// test runs the command line on files and compares with one process: losses are
// the same, and each rank needs much less than a third of the bytes of one
// process.
//
// Photograph has 6,000 x 4,000 pixels (label slow; one process takes 8 GiB);
// Drawing is a small version. The measurements are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "parallel/base/units.h"
#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kImages = 3;
constexpr int kSteps = 2;  // less than an epoch, so without validation

// A BMP of 24 bits per pixel: rectangles on noise. `width` is a multiple of 4.
void write_bitmap(const fs::path& file, uint32_t height, uint32_t width,
                  uint32_t seed) {
  std::string bytes = "BM";
  const auto number = [&bytes](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(value >> (8 * i) & 255));
    }
  };
  number(54 + height * width * 3, 4);
  number(0, 4);
  number(54, 4);
  number(40, 4);
  number(width, 4);
  number(height, 4);
  number(1, 2);
  number(24, 2);
  for (int i = 0; i < 6; ++i) number(0, 4);
  uint32_t state = seed;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width * 3; ++x) {
      state = state * 1664525u + 1013904223u;
      const uint32_t tile = (y * 8 / height * 7 + x * 8 / (width * 3)) * 37;
      bytes.push_back(static_cast<char>((tile + (state >> 27) + seed) & 255));
    }
  }
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string make_data(const fs::path& folder, uint32_t height, uint32_t width) {
  for (const std::string split : {"train", "val"}) {
    const int count = split == "train" ? kImages : 1;
    fs::create_directories(folder / "images" / split);
    fs::create_directories(folder / "labels" / split);
    for (int i = 0; i < count; ++i) {
      const std::string name = std::to_string(i);
      write_bitmap(folder / "images" / split / (name + ".bmp"), height, width,
                   static_cast<uint32_t>(i) * 50);
      std::ofstream labels(folder / "labels" / split / (name + ".txt"));
      // The boxes have all sizes, and some cross the cuts between ranks.
      for (int box = 0; box < 12; ++box) {
        labels << box % 2 << ' ' << 0.08 * (box + 0.5) + 0.02 * i << ' '
               << 0.125 * (box % 7 + 1) << ' ' << 0.02 * (box % 4 + 1) << ' '
               << 0.03 * (box % 3 + 1) << '\n';
      }
    }
  }
  std::ofstream(folder / "data.yaml")
      << "train: images/train\nval: images/val\nnames: [wide, tall]\n";
  return (folder / "data.yaml").string();
}

int64_t largest_resident_bytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

struct Run {
  std::vector<Json> steps;
  std::vector<int64_t> tensors;   // the peak of each rank
  std::vector<int64_t> resident;  // of each worker process, ascending
};

// Trains in a folder beside the data.
Run train(const std::string& data, const std::vector<std::string>& size,
          const std::string& precision, const std::string& layout) {
  const fs::path folder = fs::path(data).parent_path().parent_path() / layout;
  fs::create_directories(folder);
  Program headroom(
      joined(headroom_command(
                 "train --data " + data +
                 " --cfg yolov5n --batch 1 --rect --threads 1 --workers 1 "
                 "--noval --precision " +
                 precision + " --layout " + layout + " --max-steps " +
                 std::to_string(kSteps) + " --img"),
             size),
      folder);
  std::map<pid_t, int64_t> resident;
  const fs::path steps = folder / "runs/train/exp/steps.jsonl";
  const auto measure = [&] {
    for (const pid_t pid : descendants(headroom.pid(), "headroom-worker")) {
      resident[pid] = std::max(resident[pid], largest_resident_bytes(pid));
    }
  };
  // Measures until the run has ended. VmHWM never decreases while a worker
  // lives.
  std::atomic<bool> ended = false;
  std::thread watcher([&] {
    while (!ended) {
      measure();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const ProgramResult result = headroom.join();
  ended = true;
  watcher.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Run run;
  run.steps = read_lines(steps);
  if (run.steps.empty()) return run;
  for (const Json& rank : run.steps.back().at("memory")) {
    run.tensors.push_back(rank.at("measured_peak_bytes"));
  }
  for (const auto& [pid, bytes] : resident) run.resident.push_back(bytes);
  std::sort(run.resident.begin(), run.resident.end());
  return run;
}

double ratio(int64_t one, int64_t rank) {
  return static_cast<double>(one) / static_cast<double>(rank);
}

struct Bounds {
  double loss = 1e-5, gradient_norm = 1e-3;  // largest relative difference
  double tensors = 1,
         resident = 1;  // bytes of one process divided by a rank's
};

void check(uint32_t height, uint32_t width, const std::string& precision,
           const Bounds& bounds) {
  const std::string data = make_data(fresh_folder() / "data", height, width);
  const std::vector<std::string> size = {std::to_string(height),
                                         std::to_string(width)};
  const Run one = train(data, size, precision, "data=1");
  const Run split = train(data, size, precision, "spatial=4");
  ASSERT_EQ(one.steps.size(), kSteps);
  ASSERT_EQ(split.steps.size(), kSteps);
  for (int step = 0; step < kSteps; ++step) {
    for (const char* key : {"loss", "grad_norm"}) {
      const auto expected = one.steps[step].at(key).get<double>();
      const auto found = split.steps[step].at(key).get<double>();
      const double difference = std::abs(found / expected - 1);
      std::printf("step %d %s: %.7g, relative difference %.1e\n", step, key,
                  expected, difference);
      EXPECT_LT(difference,
                std::string(key) == "loss" ? bounds.loss : bounds.gradient_norm)
          << key;
    }
  }
  // The first step updates the weights, so the loss of the second step depends
  // on this update.
  EXPECT_TRUE(split.steps.front().at("optimizer_step").get<bool>());
  std::printf("one process: tensors %s, resident %s\n",
              format_bytes(one.tensors.front()).c_str(),
              format_bytes(one.resident.back()).c_str());
  ASSERT_EQ(split.tensors.size(), 4u);
  for (size_t rank = 0; rank < split.tensors.size(); ++rank) {
    std::printf("rank %zu: tensors %s, 1/%.2f\n", rank,
                format_bytes(split.tensors[rank]).c_str(),
                ratio(one.tensors.front(), split.tensors[rank]));
    EXPECT_GE(ratio(one.tensors.front(), split.tensors[rank]), bounds.tensors);
  }
  std::printf("fullest worker of four: resident %s, 1/%.2f\n",
              format_bytes(split.resident.back()).c_str(),
              ratio(one.resident.back(), split.resident.back()));
  EXPECT_GE(ratio(one.resident.back(), split.resident.back()), bounds.resident);
  fs::remove_all(fs::path(data).parent_path());
}

TEST(Drawing, TrainsOverFourRanks) {
  check(768, 1152, "fp32", {.tensors = 2.5, .resident = 1.2});
}

// Shows that the difference in float32 above is rounding.
TEST(Drawing, IsTheSameInFloat64) {
  check(256, 384, "fp64", {.loss = 1e-9, .gradient_norm = 1e-9});
}

TEST(Photograph, TrainsOverFourRanks) {
  check(4000, 6000, "fp32", {.tensors = 3.2, .resident = 3.2});
}

}  // namespace
}  // namespace headroom::testing
