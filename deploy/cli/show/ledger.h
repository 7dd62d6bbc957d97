// Ledger: proves from a run's files that every step was committed once and that
// each epoch used every sample exactly once.
//
// The samples of step n are a function of (seed, n, global batch, size of the
// data set) (worker/data/sampling/sampler.h). steps.jsonl lists the samples
// that each committed step used, or in a run of large batches their positions
// in the epoch's order; run.yaml has the other values. The computed and the
// listed samples are compared one by one, so a line that was lost, duplicated,
// reordered or altered is found and named. These rules are checked:
//
//   steps      0, 1, 2, ... each once; generations never decrease, except to
//              1 when a resumed run begins
//   a step     the sampler's samples in its order; with --rect only their
//              number, because that order depends on image sizes
//   an epoch   every sample of 0..n-1 once; the last epoch may be unfinished
//
// With --image-weights samples repeat. Which samples repeat depends on labels
// and validations, which are not in these files. But an epoch draws from one
// table: a step's numbers in [0, 1) follow from (seed, n), and over the epoch
// the sample index rises with the number. So other rules replace the sampler's
// order:
//
//   a step     as many samples as the step has positions
//   an epoch   n samples, whose indices rise with their draws
//
// This finds lines that were lost, duplicated, reordered or altered, except a
// sample that was replaced by one that its neighbours' draws also allow.
//
// Positions are expanded to samples where the order is known. With --rect or
// --image-weights only the positions themselves are checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace headroom::cli {

struct LedgerRules {
  uint64_t seed = 0;
  int64_t global_batch_size = 1;
  bool order_is_known = true;  // false with --rect: the order is not checked
  bool by_weight = false;      // true with --image-weights
};

struct LedgerReport {
  int64_t num_steps = 0;    // lines of steps.jsonl
  int64_t num_samples = 0;  // the data set's size; 0 before the first line
  int64_t complete_epochs = 0;
  int64_t used_in_open_epoch = 0;  // samples of the unfinished epoch
  uint64_t generations = 0;        // the newest generation
  bool by_weight = false;          // samples may repeat
  bool names_samples = true;  // false: some lines have only unknown positions
  // The last line is incomplete: the run was killed while it wrote this line,
  // or is still writing it.
  bool torn_last_line = false;
  std::vector<std::string> problems;  // the first kMaxProblems, in line order
  int64_t num_problems = 0;

  static constexpr size_t kMaxProblems = 20;
  bool exact() const { return num_problems == 0; }
};

// Throws Error (exit 2) if the file cannot be read. REQUIRES:
// rules.global_batch_size > 0.
LedgerReport check_ledger(const LedgerRules& rules,
                          const std::filesystem::path& steps_jsonl);

// Text for people, and one JSON document for programs.
std::string ledger_text(const LedgerReport& report);
std::string ledger_json(const LedgerReport& report);

// Reads a run directory. Throws Error (exit 2) if the folder is not a run
// directory, or if its run had no samples (--synthetic-input, val).
LedgerReport check_ledger_of(const std::string& run_directory);

}  // namespace headroom::cli
