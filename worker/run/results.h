// The results of a run for users: results.csv (YOLOv5's columns), TensorBoard
// curves, summary.json. Rank 0 writes them after each epoch.
// Errors: Error (exit 5).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/loss_terms.h"
#include "worker/memory/memory_comparison.h"
#include "worker/run/run_device.h"
#include "worker/run/tensorboard.h"
#include "worker/validation/validate.h"

namespace headroom::run {

// This process's share of an epoch: its steps, their images and their time.
struct EpochWork {
  int64_t steps = 0, images = 0;
  double seconds = 0;
};

struct EpochRecord {
  int64_t epoch = 0;
  int64_t step = 0;         // number of committed steps so far
  bool has_anchors = true;  // of the head: it names the losses
  LossTerms losses = {};    // means over the epoch
  EpochWork work;
  bool is_skipped = false;  // neither validated nor saved (ValidationPace)
  std::array<double, 3> lr = {};  // learning rate of each parameter group
  std::optional<validation::ValidationResult> validation;
  std::vector<memory::PhaseMemory::Rank> validation_memory;  // for each rank
};

// One line for users: "epoch 3/60  P 0.71  R 0.66  mAP50 0.70  mAP50-95 0.41".
std::string describe(const EpochRecord& record, int64_t num_epochs);
// The numbers of an epoch's event as JSON, for the progress display.
std::string to_event_json(const EpochRecord& record);

// The training losses as a line: "epoch 3/60  box 0.081  obj 0.033  cls 0.021",
// by the names of the head's terms.
std::string describe_training(const EpochRecord& record, int64_t num_epochs);
std::string training_event_json(const EpochRecord& record, int64_t num_epochs);

class Results {
 public:
  // Keeps the rows of epochs below `first_epoch`, removes the others. The head
  // names the columns of the losses.
  Results(const std::filesystem::path& folder, int64_t first_epoch,
          bool has_anchors);

  // Throws Error (exit 5) if results.csv cannot be written now; its rows are
  // kept and written later.
  void write(const EpochRecord& record);
  void write_waiting();
  // Adds to TensorBoard the pictures of batches that were drawn since the last
  // call.
  void show_pictures();

 private:
  std::filesystem::path folder_;
  LineFile csv_;
  TensorboardWriter tensorboard_;
  int64_t epoch_ = 0;  // the newest written epoch
  // Pictures that already existed or have been added.
  std::map<std::string, std::filesystem::file_time_type> known_pictures_;
};

// Counts of checkpoints in one session of a run. `skipped`: checkpoints that
// were not written because another one was being written.
struct CheckpointCounts {
  int64_t written = 0, skipped = 0, failed = 0;
  int64_t bytes = 0;  // size of the written checkpoints
};

// summary.json: the metrics of best.safetensors and the resources of the run.
struct RunSummary {
  std::string
      best_metrics_json;  // made by to_json(); "" before the first validation
  int64_t best_epoch = -1;
  int64_t steps = 0, epochs = 0, images = 0;
  uint64_t generations = 1;
  int64_t retries = 0;
  double wall_seconds = 0;          // the sum over all sessions of the run
  std::vector<int64_t> peak_bytes;  // peak of each rank's steps
  std::vector<memory::PhaseMemory> memory;      // peaks of other phases
  std::vector<DeviceMemoryLine> device_memory;  // one per rank; empty for CPUs
  CheckpointCounts checkpoints;
  std::string ended;  // why the run ended, as a sentence
  int exit_code = 0;  // set when the run has ended
};
std::string to_json(const RunSummary& summary);
std::string to_json(const validation::ValidationResult& result);
nlohmann::ordered_json metrics_json(const validation::ValidationResult& result);

// The summary of an earlier session of the same run; empty if there is none.
RunSummary read_summary(const std::filesystem::path& file);

}  // namespace headroom::run
