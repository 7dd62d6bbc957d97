// Cells of the fit matrix. A cell is a model, an image size, a micro-batch, an
// activation policy and a layout, with the predicted and the measured bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom {

struct FitCell {
  std::string model = "yolov5n";
  int64_t image_size = 320;
  int64_t micro_batch = 1;
  // Or "mixed": the policy changes from layer to layer.
  std::string policy = "keep";
  std::string layout = "one";  // "data", "zero3", "pipeline", "spatial"
  int64_t more_boxes = 0;      // per image
  int64_t freeze = 0;  // the number of first layers that are not trained
  bool between_hosts = false;  // sockets are used, as between machines
  std::string precision = "fp32";
  std::string teacher = "";  // a shipped model
  bool on_device = false;    // each rank has a test device
  bool cuda_graphs = false;  // only on a device
  bool deep = false;         // images of 16 bits
  int64_t batch = 0;         // groups as usual; 0: 1 or 2 micro-batches
  int split = 2;             // the number of ranks, unless the layout is "one"

  std::string name() const;
  configs::RunConfig config() const;
  int world_size() const { return layout == "one" ? 1 : split; }
};

// The plan that train would use; with "mixed", its policies are changed.
plan::Plan plan_of(const FitCell& cell);

// The sum over all ranks of the bytes that are predicted for the whole run
// before anything is allocated.
int64_t predicted_bytes_of_all_ranks(const FitCell& cell);

// Bytes of one rank in one step.
struct FitMeasurement {
  int rank = 0;
  int step = 0;  // the first step is 1
  int64_t predicted = 0;
  int64_t measured = 0;
  double ratio() const {
    return static_cast<double>(predicted) / static_cast<double>(measured);
  }
};
std::vector<FitMeasurement> measure(const FitCell& cell, int steps);

// Measures the phases outside of steps: start-up, then a validation after a
// step (two batches of the given number of images), then a checkpoint, for each
// rank. `step` is 0. Files are written to `folder`.
struct PhaseMeasurement : FitMeasurement {
  std::string phase;
};
std::vector<PhaseMeasurement> measure_phases(
    const FitCell& cell, int64_t validation_images,
    const std::filesystem::path& folder);

// Every model, size and micro-batch under every policy, each with one of the
// layouts in turn; then small models under all layouts. Cells that need more
// than `limit` are left out. The cheapest cells come first.
std::vector<FitCell> fit_matrix(int64_t limit);

}  // namespace headroom
