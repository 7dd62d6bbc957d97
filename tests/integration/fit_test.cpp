// A run fits as predicted: compares the bytes that each rank needs in a step,
// as predicted from the step's shapes without a tensor, with those that the
// counting allocator measures.
//
//   in every cell   measured <= predicted <= 1.05 measured
//   in the median   predicted <= 1.02 measured
//
// The table is printed. Ranks are threads, each with its own account. The whole
// matrix is in Matrix (label slow, a test per model and size:
// --gtest_filter=*Matrix*yolov5n_320*). Resident checks the counting itself:
// the process must grow by the counted bytes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/units.h"
#include "tests/integration/fit_cells.h"

namespace headroom {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMostBytes = 12 * kGiB;
constexpr double kMostOver = 1.05;
constexpr double kMostOverInMedian = 1.02;

class Table {
 public:
  explicit Table(double most_over_in_median = kMostOverInMedian)
      : most_over_in_median_(most_over_in_median) {}

  // Adds the worst measurements of each rank of the cell, and prints them.
  void add(const FitCell& cell, const std::vector<FitMeasurement>& all) {
    std::map<int, FitMeasurement> highest, lowest;
    for (const FitMeasurement& one : all) {
      EXPECT_GE(one.predicted, one.measured)
          << cell.name() << ", rank " << one.rank << ", step " << one.step;
      EXPECT_LE(one.ratio(), kMostOver)
          << cell.name() << ", rank " << one.rank << ", step " << one.step;
      ratios_.push_back(one.ratio());
      const auto high = highest.try_emplace(one.rank, one).first;
      if (one.ratio() > high->second.ratio()) high->second = one;
      const auto low = lowest.try_emplace(one.rank, one).first;
      if (one.ratio() < low->second.ratio()) low->second = one;
    }
    for (const auto& [rank, one] : highest) {
      std::printf("| %-42s | %d | %10s | %10s | %.4f to %.4f |\n",
                  cell.name().c_str(), rank,
                  format_bytes(one.predicted).c_str(),
                  format_bytes(one.measured).c_str(), lowest.at(rank).ratio(),
                  one.ratio());
    }
    std::fflush(stdout);
    ++num_cells_;
  }
  ~Table() {
    if (ratios_.empty()) return;
    const auto middle =
        ratios_.begin() + static_cast<std::ptrdiff_t>(ratios_.size() / 2);
    std::ranges::nth_element(ratios_, middle);
    EXPECT_LE(*middle, most_over_in_median_);
    std::printf(
        "%d cells, predicted / measured: median %.4f, from %.4f to "
        "%.4f\n",
        num_cells_, *middle, *std::ranges::min_element(ratios_),
        *std::ranges::max_element(ratios_));
  }

 private:
  const double most_over_in_median_;
  int num_cells_ = 0;
  std::vector<double> ratios_;
};

TEST(Fit, SmallCells) {
  Table table;
  const std::vector<FitCell> cells = {
      {"yolov5n", 320, 1, "keep", "one", 0},
      {"yolov5n", 320, 2, "lean", "one", 300},
      {"yolov5n", 320, 1, "recompute", "one", 0},
      {"yolov5n", 320, 1, "offload", "one", 0},
      {"yolov5n", 320, 2, "mixed", "one", 0},
      {"yolov5n", 320, 1, "keep", "data", 0},
      {"yolov5n", 320, 1, "recompute", "zero3", 0},
      {"yolov5n", 320, 1, "mixed", "zero3", 0},
      {"yolov5n", 320, 1, "lean", "pipeline", 300},
      {"yolov5n", 320, 1, "offload", "pipeline", 0},
      {"yolov5n", 320, 1, "mixed", "spatial", 300},
      {"yolov5n", 320, 2, "recompute", "spatial", 0}};
  for (const FitCell& cell : cells) table.add(cell, measure(cell, 2));
}

// Each batch has one batch-norm group of odd size, or groups of two sizes. The
// groups are on one rank, shared by both ranks, in micro-batches, or in bands
// of images.
TEST(Fit, UnevenGroups) {
  Table table;
  const std::vector<std::pair<int64_t, std::vector<FitCell>>> batches = {
      {37,
       {{"yolov5n", 128, 37, "keep", "one", 0},
        {"yolov5n", 128, 19, "lean", "one", 0},
        {"yolov5n", 128, 37, "keep", "data", 0},
        {"yolov5n", 128, 37, "recompute", "zero3", 0},
        {"yolov5n", 128, 19, "keep", "pipeline", 0},
        {"yolov5n", 128, 19, "keep", "spatial", 0}}},
      {17,
       {{"yolov5n", 128, 17, "keep", "one", 0},
        {"yolov5n", 128, 17, "keep", "data", 0}}},
      {34, {{"yolov5n", 128, 17, "keep", "data", 0}}},
      {100, {{"yolov5n", 64, 17, "lean", "one", 0}}}};
  for (const auto& [batch, cells] : batches) {
    for (FitCell cell : cells) {
      cell.batch = batch;
      table.add(cell, measure(cell, 2));
    }
  }
}

// Batches whose groups differ in size or are larger than usual, under every
// layout, with the activations kept and recomputed.
TEST(MatrixOfUnevenGroups, UnderEveryLayout) {
  Table table;
  struct Batch {
    int64_t images;
    int64_t group;  // the size of its largest group
  };
  for (const Batch& batch :
       std::vector<Batch>{{17, 17}, {34, 17}, {37, 19}, {100, 17}}) {
    for (const std::string policy : {"keep", "recompute"}) {
      for (const auto& [layout, ranks] :
           std::vector<std::pair<std::string, int>>{{"one", 1},
                                                    {"data", 2},
                                                    {"data", 3},
                                                    {"zero3", 2},
                                                    {"zero3", 3},
                                                    {"pipeline", 2},
                                                    {"spatial", 2}}) {
        // If ranks share a group, it is in progress on all of them at the same
        // time.
        const bool by_groups = layout == "pipeline" || layout == "spatial";
        FitCell cell = {"yolov5n", 128, by_groups ? batch.group : batch.images,
                        policy, layout};
        cell.batch = batch.images;
        cell.split = ranks;
        table.add(cell, measure(cell, 2));
      }
    }
  }
}

FitCell in_precision(FitCell cell, const std::string& precision) {
  cell.precision = precision;
  return cell;
}

// The cells, each in all of the precisions.
std::vector<FitCell> in_precisions(const std::vector<FitCell>& cells,
                                   const std::vector<std::string>& precisions) {
  std::vector<FitCell> all;
  for (const FitCell& cell : cells)
    for (const std::string& precision : precisions)
      all.push_back(in_precision(cell, precision));
  return all;
}

// The CPU computes float16 convolutions in float32, so the peak of a step is at
// another point than with bfloat16.
TEST(Fit, MapsOf16Bits) {
  Table table;
  const std::vector<FitCell> cells = {
      {"yolov5n", 320, 1, "keep", "one", 0},
      {"yolov5n", 320, 2, "mixed", "one", 300},
      {"yolov5n", 320, 1, "keep", "data", 0},
      {"yolov5n", 320, 2, "recompute", "zero3", 0},
      {"yolov5n", 320, 1, "lean", "pipeline", 300},
      {"yolov5n", 320, 2, "keep", "spatial", 0}};
  for (const FitCell& cell : in_precisions(cells, {"bf16", "fp16"}))
    table.add(cell, measure(cell, 2));
}

// A device does not need the scratch memory of the CPU's convolutions. It has
// another loss, a workspace for the commit, and the workspaces of its
// convolution library, which are measured.
TEST(Fit, OnADevice) {
  Table table;
  std::vector<FitCell> cells = {{"yolov5n", 320, 1, "keep", "one", 0},
                                {"yolov5n", 320, 2, "lean", "one", 300},
                                {"yolov5n", 64, 4, "recompute", "one", 0},
                                {"yolov5n", 320, 1, "offload", "one", 0},
                                {"yolov5n", 320, 1, "mixed", "data", 300},
                                {"yolov5n", 320, 1, "recompute", "zero3", 0},
                                {"yolov5n", 320, 1, "lean", "pipeline", 300},
                                {"yolov5n", 320, 2, "keep", "spatial", 0}};
  for (FitCell& cell : cells) cell.on_device = true;
  for (const FitCell& cell : in_precisions(cells, {"fp32", "bf16"}))
    table.add(cell, measure(cell, 2));
  // Float64 differs only in its operators, whatever the policy and the layout,
  // so three cells are enough.
  for (const FitCell& cell :
       in_precisions({cells[1], cells[2], cells[7]}, {"fp64"}))
    table.add(cell, measure(cell, 2));
  // Images of 16 bits take twice the bytes.
  for (FitCell cell : {cells[1], cells[2], cells[7]}) {
    cell.deep = true;
    table.add(cell, measure(cell, 2));
  }
  // Depthwise convolutions, grouped ones and transposed ones.
  const std::string folder = HEADROOM_SOURCE_DIR "/tests/support/models/";
  for (const std::string& model :
       {std::string("yolov5s-mobilenetv3"), folder + "many_modules.yaml"}) {
    FitCell cell = {model, 320, 1, "keep", "one", 0};
    cell.on_device = true;
    cell.precision = "fp64";
    table.add(cell, measure(cell, 2));
  }
}

// Adds the steps of the cell from the third on. Layers are captured in the
// third step.
void add_captured(Table& table, const FitCell& cell) {
  std::vector<FitMeasurement> measured = measure(cell, 4);
  std::erase_if(measured, [](const FitMeasurement& m) { return m.step < 3; });
  table.add(cell, measured);
}

// Captured graphs keep the peak memory of the layers, and buffers for the
// images and for the largest number of matches.
TEST(Fit, CapturedLayers) {
  Table table;
  for (FitCell cell :
       std::vector<FitCell>{{"yolov5n", 320, 2, "keep", "one", 0},
                            {"yolov5n", 320, 4, "keep", "one", 24},
                            {"yolov5n", 320, 2, "lean", "one", 300},
                            {"yolov5n", 320, 2, "recompute", "one", 0},
                            {"yolov5n", 320, 1, "lean", "data", 300}}) {
    cell.on_device = cell.cuda_graphs = true;
    for (const std::string precision : {"fp32", "bf16"}) {
      add_captured(table, in_precision(cell, precision));
    }
  }
}

// Every policy and layout, with two models.
TEST(MatrixOfPrecisions, MapsOf16Bits) {
  Table table;
  std::vector<FitCell> cells;
  for (const std::string model : {"yolov5n", "yolov5s"})
    for (const std::string layout :
         {"one", "data", "zero3", "pipeline", "spatial"})
      for (const std::string policy :
           {"keep", "lean", "recompute", "offload", "mixed"})
        cells.push_back(
            {model, 320, 2, policy, layout, policy == "lean" ? 300 : 0});
  for (const FitCell& cell : in_precisions(cells, {"bf16", "fp16"}))
    table.add(cell, measure(cell, 2));
}

// All modules that no published model has, under every policy and layout.
TEST(Fit, OwnModels) {
  Table table;
  const std::string folder = HEADROOM_SOURCE_DIR "/tests/support/models/";
  const FitCell gray = {folder + "gray.yaml", 640, 2, "recompute", "one", 0};
  table.add(gray, measure(gray, 2));
  // More anchors, more outputs and more matches.
  const std::string anchors = folder + "five_anchors.yaml";
  for (const FitCell& cell :
       std::vector<FitCell>{{anchors, 640, 2, "keep", "one", 300},
                            {anchors, 640, 2, "recompute", "data", 300},
                            {anchors, 640, 2, "lean", "spatial", 300}}) {
    table.add(cell, measure(cell, 2));
  }
  const std::string bands = folder + "five_bands.yaml";
  for (const FitCell& cell : std::vector<FitCell>{
           {bands, 640, 2, "keep", "one", 0},
           {bands, 640, 2, "recompute", "data", 0},
           {bands, 640, 2, "lean", "pipeline", 0},
           {bands, 640, 2, "mixed", "spatial", 0},
           in_precision({bands, 640, 2, "keep", "one", 0}, "bf16")}) {
    table.add(cell, measure(cell, 2));
  }
  for (const std::string& model :
       {folder + "many_modules.yaml", std::string("yolov5s-ghost"),
        std::string("yolov5s-mobilenetv3"),
        std::string("yolov5s-shufflenetv2")}) {
    for (const FitCell& cell : std::vector<FitCell>{
             {model, 320, 1, "keep", "one", 0},
             {model, 320, 2, "lean", "data", 0},
             {model, 320, 2, "recompute", "zero3", 300},
             {model, 320, 1, "offload", "pipeline", 0},
             {model, 320, 2, "keep", "spatial", 0},
             {model, 320, 1, "mixed", "spatial", 0},
             in_precision({model, 320, 2, "mixed", "one", 0}, "bf16")}) {
      table.add(cell, measure(cell, 2));
    }
  }
}

// Heads without anchors: branches of convolutions, and a loss that assigns
// places from predictions. Few labels, many, and 2,000 in each image.
TEST(Fit, HeadsWithoutAnchors) {
  Table table;
  std::vector<FitCell> cells = {{"yolov5nu", 320, 1, "keep", "one", 0},
                                {"yolov5nu", 320, 2, "lean", "one", 300},
                                {"yolov5nu", 320, 1, "recompute", "one", 2000},
                                {"yolov8n", 320, 2, "mixed", "one", 0},
                                {"yolov8n", 640, 1, "offload", "one", 2000},
                                {"yolov5nu", 320, 2, "keep", "data", 0},
                                {"yolov8n", 320, 1, "recompute", "zero3", 0},
                                {"yolov8n", 320, 1, "lean", "pipeline", 300},
                                {"yolov5nu", 320, 1, "mixed", "spatial", 300},
                                {"yolov8n", 320, 2, "recompute", "spatial", 0},
                                {"yolov5n6u", 256, 1, "keep", "one", 0}};
  for (const FitCell& cell : in_precisions(cells, {"fp32", "bf16", "fp16"}))
    table.add(cell, measure(cell, 2));
  for (const FitCell& cell : in_precisions({cells[0], cells[2]}, {"fp64"}))
    table.add(cell, measure(cell, 2));
}

// On a device kernels assign the places.
TEST(Fit, HeadsWithoutAnchorsOnADevice) {
  Table table;
  std::vector<FitCell> cells = {{"yolov8n", 320, 1, "keep", "one", 0},
                                {"yolov5nu", 320, 2, "lean", "one", 300},
                                {"yolov8n", 320, 1, "recompute", "one", 2000},
                                {"yolov8n", 320, 2, "keep", "spatial", 300}};
  for (FitCell& cell : cells) cell.on_device = true;
  for (const FitCell& cell : in_precisions(cells, {"fp32", "bf16"}))
    table.add(cell, measure(cell, 2));
  FitCell captured = {"yolov8n", 320, 2, "keep", "one", 24};
  captured.on_device = captured.cuda_graphs = true;
  add_captured(table, in_precision(captured, "bf16"));
}

// These models have four levels and a largest stride of 64. With smaller
// images, the bound of a convolution's reordered weights would be more than 5 %
// of the total.
TEST(Fit, ModelsForLargeImages) {
  Table table;
  const std::vector<FitCell> cells = {
      {"yolov5n6", 256, 1, "keep", "one", 0},
      {"yolov5n6", 128, 2, "lean", "pipeline", 300},
      {"yolov5n6", 320, 1, "recompute", "spatial", 300},
      {"yolov5s6", 128, 2, "mixed", "data", 0}};
  for (const FitCell& cell : cells) table.add(cell, measure(cell, 2));
}

// As in ModelsForLargeImages, the images are too small for a median of 2 %.
TEST(MatrixOfLargeModels, EachStepsOnSmallImages) {
  Table table(kMostOver);
  for (const std::string model : {"yolov5m6", "yolov5l6", "yolov5x6"}) {
    const FitCell cell = {model, 128, 1, "keep", "one", 0};
    table.add(cell, measure(cell, 2));
  }
}

// Frozen layers keep no activations and get no gradients. The teacher adds its
// weights, and the memory of its evaluation where this is larger than the
// student's.
TEST(Fit, ATeacher) {
  Table table;
  for (FitCell cell :
       std::vector<FitCell>{{"yolov5n", 320, 1, "keep", "one", 0},
                            {"yolov5n", 320, 2, "recompute", "one", 300},
                            {"yolov5n", 320, 2, "lean", "data", 0},
                            {"yolov5n", 320, 1, "mixed", "zero3", 0}}) {
    cell.teacher = "yolov5s";
    table.add(cell, measure(cell, 2));
  }
}

TEST(Fit, FrozenLayers) {
  Table table;
  for (const FitCell& cell :
       std::vector<FitCell>{{"yolov5n", 320, 2, "keep", "one", 0, 10},
                            {"yolov5n", 320, 2, "mixed", "one", 0, 5},
                            {"yolov5n", 320, 1, "recompute", "zero3", 0, 10},
                            {"yolov5n", 320, 2, "lean", "pipeline", 0, 10},
                            {"yolov5n", 320, 2, "keep", "spatial", 0, 24}}) {
    table.add(cell, measure(cell, 2));
  }
}

// The weights of a layer are gathered while the previous layer runs.
TEST(Fit, WeightsAreFetchedAheadBetweenHosts) {
  Table table;
  for (const std::string policy : {"keep", "recompute"}) {
    FitCell cell = {"yolov5n", 320, 1, policy, "zero3", 0};
    cell.between_hosts = true;
    table.add(cell, measure(cell, 2));
  }
}

class PhaseTable {
 public:
  PhaseTable() : folder_(testing::TempDir() + "headroom_phases") {}
  ~PhaseTable() { std::filesystem::remove_all(folder_); }

  void add(const FitCell& cell, int64_t validation_images) {
    std::filesystem::remove_all(folder_);
    for (const PhaseMeasurement& one :
         measure_phases(cell, validation_images, folder_)) {
      EXPECT_GE(one.predicted, one.measured)
          << cell.name() << ", rank " << one.rank << ", " << one.phase;
      if (one.phase == "validation") {
        EXPECT_LE(one.ratio(), kMostOver) << cell.name();
      }
      std::printf("| %-30s | %d at once | %d | %-10s | %10s | %10s | %.4f |\n",
                  cell.name().c_str(), static_cast<int>(validation_images),
                  one.rank, one.phase.c_str(),
                  format_bytes(one.predicted).c_str(),
                  format_bytes(one.measured).c_str(), one.ratio());
    }
    std::fflush(stdout);
  }

 private:
  const std::string folder_;
};

TEST(Fit, PhasesBesideTheSteps) {
  PhaseTable table;
  table.add({"yolov5n", 320, 4, "keep", "one", 300}, 4);
  table.add({"yolov5n", 320, 4, "recompute", "one", 0}, 3);
  for (const FitCell& cell :
       in_precisions({{"yolov5n", 320, 2, "keep", "one", 0},
                      {"yolov5n", 320, 2, "keep", "zero3", 0}},
                     {"bf16", "fp16"}))
    table.add(cell, 2);
  table.add({"yolov5n", 320, 2, "keep", "data", 0}, 4);
  table.add({"yolov5n", 320, 2, "keep", "zero3", 0}, 4);
  table.add({"yolov5n", 320, 2, "keep", "pipeline", 0}, 2);
  table.add({"yolov5n", 320, 2, "keep", "spatial", 300}, 2);
  for (FitCell cell :
       std::vector<FitCell>{{"yolov5n", 320, 4, "keep", "one", 300},
                            {"yolov5n", 320, 2, "keep", "zero3", 0},
                            {"yolov5n", 320, 2, "keep", "pipeline", 0},
                            {"yolov5n", 320, 2, "keep", "spatial", 300}}) {
    cell.on_device = true;
    table.add(cell, 2);
  }
}

// Validation decodes distances into rows with an objectness of 1. On a device
// the host computes its loss.
TEST(Fit, PhasesOfHeadsWithoutAnchors) {
  PhaseTable table;
  for (FitCell cell :
       std::vector<FitCell>{{"yolov5nu", 320, 4, "keep", "one", 300},
                            {"yolov8n", 320, 4, "recompute", "one", 2000},
                            {"yolov8n", 320, 2, "keep", "zero3", 0},
                            {"yolov5nu", 320, 2, "keep", "pipeline", 0},
                            {"yolov8n", 320, 2, "keep", "spatial", 300}}) {
    table.add(cell, 2);
    if (cell.more_boxes == 2000) continue;
    cell.on_device = true;
    table.add(cell, 2);
  }
  table.add(in_precision({"yolov8n", 320, 2, "keep", "one", 0}, "bf16"), 2);
  table.add(in_precision({"yolov5nu", 320, 2, "keep", "one", 0}, "fp64"), 2);
}

// Networks without anchors under every policy and precision, each with one of
// the layouts and numbers of labels in turn.
TEST(MatrixWithoutAnchors, Fits) {
  Table table;
  const std::vector<std::string> layouts = {"one", "data", "zero3", "pipeline",
                                            "spatial"};
  const std::vector<int64_t> boxes = {0, 300, 2000};
  size_t turn = 0;
  for (const auto& [model, size] :
       std::vector<std::pair<std::string, int64_t>>{{"yolov5nu", 640},
                                                    {"yolov5su", 320},
                                                    {"yolov5mu", 320},
                                                    {"yolov8n", 1280},
                                                    {"yolov8s", 640},
                                                    {"yolov8m", 320},
                                                    {"yolov5n6u", 640}}) {
    for (const std::string policy :
         {"keep", "lean", "recompute", "offload", "mixed"}) {
      for (const std::string precision : {"fp32", "bf16", "fp16", "fp64"}) {
        FitCell cell = {model,
                        size,
                        1,
                        policy,
                        layouts[(turn + turn / 5) % layouts.size()],
                        boxes[turn % boxes.size()]};
        cell.precision = precision;
        ++turn;
        table.add(cell, measure(cell, 2));
      }
    }
  }
}

// The same on a device, where kernels assign the places; with captured layers
// wherever the policy permits it.
TEST(MatrixWithoutAnchors, FitsOnADevice) {
  Table table;
  const std::vector<int64_t> boxes = {0, 300, 2000};
  size_t turn = 0;
  for (const std::string model : {"yolov5nu", "yolov5su", "yolov8n", "yolov8s"})
    for (const std::string policy :
         {"keep", "lean", "recompute", "offload", "mixed"})
      for (const std::string precision : {"fp32", "bf16"}) {
        FitCell cell = {model,  320,   1,
                        policy, "one", boxes[turn++ % boxes.size()]};
        cell.precision = precision;
        cell.on_device = true;
        cell.cuda_graphs = policy != "offload" && policy != "mixed";
        add_captured(table, cell);
      }
}

TEST(MatrixOfPhases, BesideTheSteps) {
  PhaseTable table;
  for (const std::string model : {"yolov5n", "yolov5s"}) {
    for (const std::string layout :
         {"one", "data", "zero3", "pipeline", "spatial"}) {
      for (const int64_t images : {1, 8}) {
        table.add({model, 640, 4, "recompute", layout, images == 8 ? 300 : 0},
                  images);
      }
    }
  }
}

std::string group_of(const FitCell& cell) {
  return cell.model + "_" + std::to_string(cell.image_size);
}

class Matrix : public testing::TestWithParam<std::string> {};

TEST_P(Matrix, Fits) {
  Table table;
  for (const FitCell& cell : fit_matrix(kMostBytes))
    if (group_of(cell) == GetParam()) table.add(cell, measure(cell, 2));
}
INSTANTIATE_TEST_SUITE_P(Cells, Matrix,
                         testing::Values("yolov5n_320", "yolov5n_640",
                                         "yolov5s_320", "yolov5n_1280",
                                         "yolov5m_320", "yolov5s_640",
                                         "yolov5l_320"),
                         [](const auto& group) { return group.param; });

TEST(MatrixOfFits, HasAHundredAndTwentyCells) {
  EXPECT_GE(fit_matrix(kMostBytes).size(), 120U);
}

// The resident bytes of the process from /proc: the current ones, or the peak
// since the last reset.
int64_t resident_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != field + ":") continue;
    int64_t kib = 0;
    status >> kib;
    return kib << 10;
  }
  return 0;
}

// The cells need more than 1 GiB. Memory that was free before a cell has been
// returned to the system, so that the growth belongs to the cell.
TEST(MatrixResident, GrowsByTheCountedBytes) {
  const std::vector<FitCell> cells = {{"yolov5s", 640, 8, "keep", "one", 0},
                                      {"yolov5m", 320, 8, "keep", "one", 0},
                                      {"yolov5l", 320, 4, "lean", "one", 0},
                                      {"yolov5n", 1280, 4, "keep", "one", 0},
                                      {"yolov5l", 320, 8, "keep", "one", 0}};
  // malloc keeps freed memory for later blocks, or cannot return memory that is
  // between used blocks. A block with pages of its own is returned to the
  // system at once.
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  measure({"yolov5n", 320, 1, "keep", "one", 0}, 1);  // loads libraries
  for (const FitCell& cell : cells) {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    const int64_t before = resident_bytes("VmRSS");
    int64_t counted = 0;
    for (const FitMeasurement& one : measure(cell, 2))
      counted = std::max(counted, one.measured);
    const int64_t grown = resident_bytes("VmHWM") - before;
    std::printf("| %-42s | counted %10s | resident %10s | %.3f |\n",
                cell.name().c_str(), format_bytes(counted).c_str(),
                format_bytes(grown).c_str(),
                static_cast<double>(grown) / static_cast<double>(counted));
    std::fflush(stdout);
    ASSERT_GT(counted, kGiB);
    EXPECT_GE(grown, counted * 8 / 10);
    EXPECT_LE(grown, counted * 12 / 10);
  }
}

}  // namespace
}  // namespace headroom
