// StepLog: steps.jsonl, one line per committed step, each step exactly once.
//
// Written by rank 0 right after the commit. A resume first cuts what lies
// beyond the checkpoint it uses, then appends.
//
// Threads: one. Errors: Error (exit 5) when a line cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "worker/trainer.h"

namespace headroom {

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t generation = 0;
  int64_t attempt = 1;
  double seconds = 0;
  double images_per_second = 0;  // over all ranks
  std::vector<int64_t> samples;  // of the global batch, in its order
  StepResult result;
};

// As steps.jsonl has it, without the line's end. Every line says how many
// samples an epoch has, so that the file alone can be audited
// (deploy/launch/ledger.h).
std::string to_json_line(const StepRecord& record, int64_t epoch_samples);

class StepLog {
 public:
  // Keeps the lines of steps below `first_step`, cuts the rest. `newest_line`
  // is that of the step before: a lost rank 0 may have committed it without
  // writing it.
  StepLog(const std::filesystem::path& file, int64_t first_step,
          const std::string& newest_line = "");

  void write(const std::string& line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace headroom
