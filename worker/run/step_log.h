// StepLog: steps.jsonl, one line per committed step, each step exactly once.
//
// Written by rank 0 right after the commit. A resume first cuts what lies
// beyond the checkpoint it uses, then appends.
//
// Threads: one. Errors: Error (exit 2) when the file cannot be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/line_file.h"
#include "worker/step/trainer.h"

namespace headroom::run {

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t generation = 0;
  int64_t attempt = 1;
  double seconds = 0;
  double images_per_second = 0;  // over all ranks
  std::vector<int64_t> samples;  // of the global batch, in its order
  step::StepResult result;
  // Of the network's input, in pixels, where steps differ in it; else 0.
  int64_t image_height = 0, image_width = 0;
};

// As steps.jsonl has it, without the line's end. Every line says how many
// samples an epoch has, so that the file alone can be audited
// (deploy/cli/show/ledger.h).
std::string to_json_line(const StepRecord& record, int64_t epoch_samples);

class StepLog {
 public:
  // Keeps the lines of steps below `first_step`, cuts the rest. `newest_line`
  // is that of the step before: a lost rank 0 may have committed it without
  // writing it.
  StepLog(const std::filesystem::path& file, int64_t first_step,
          const std::string& newest_line = "");

  // Whether it and all before it are in the file; else they wait.
  bool write(const std::string& line);
  // Those that wait. True: none is left.
  bool write_waiting() { return file_.write(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  LineFile file_;
};

}  // namespace headroom::run
