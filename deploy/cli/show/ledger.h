// Ledger: the proof, from a run's own files, that every step was taken once and
// that each epoch used every sample exactly once.
//
// Which samples step n uses is a function of (seed, n, global batch, size of
// the data set) (worker/data/sampling/sampler.h). steps.jsonl lists what each
// committed step did use; run.yaml says the rest. The two are compared sample
// by sample, so a line that was lost, doubled, reordered or altered is named.
//
//   steps      0, 1, 2, ... each once, generations never falling but to 1,
//   where a resumed run
//              begins
//   a step     the samples that the sampler says, in its order; with --rect,
//              whose order follows from image sizes, only their number
//   an epoch   every sample of 0..n-1 once; the last epoch may be unfinished
//
// With --image-weights samples come again, and which follows from labels and
// validations, of which these files know nothing. But an epoch draws from one
// table (worker/data/sampling/sampler.h): a step's numbers in [0, 1)
// follow from (seed, n), and over the epoch samples rise with them. So instead
// of the sampler's order
//
//   a step     as many samples as it has positions
//   an epoch   n of them, rising with their draws: what was lost, doubled,
//              reordered or altered falls out of that order, but for a sample
//              that is put where a neighbour's draw allows it too
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace headroom::cli {

struct LedgerRules {
  uint64_t seed = 0;
  int64_t global_batch_size = 1;
  bool order_is_known = true;  // false: --rect
  bool by_weight = false;      // --image-weights
};

struct LedgerReport {
  int64_t num_steps = 0;    // lines
  int64_t num_samples = 0;  // the data set's size; 0: no line yet
  int64_t complete_epochs = 0;
  int64_t used_in_open_epoch = 0;  // samples of the unfinished epoch
  uint64_t generations = 0;        // the newest
  bool by_weight = false;          // samples may come again
  // The last line has no end: a run that was killed there, or still writes.
  bool torn_last_line = false;
  std::vector<std::string> problems;  // the first kMaxProblems, by line
  int64_t num_problems = 0;

  static constexpr size_t kMaxProblems = 20;
  bool exact() const { return num_problems == 0; }
};

// REQUIRES: rules.global_batch_size > 0.
LedgerReport check_ledger(const LedgerRules& rules, std::istream& steps_jsonl);

// Lines for people; one JSON document for programs.
std::string ledger_text(const LedgerReport& report);
std::string ledger_json(const LedgerReport& report);

// Reads a run directory. Throws Error (exit 2) if it is none, or if its run had
// no samples (--synthetic-input, val).
LedgerReport check_ledger_of(const std::string& run_directory);

}  // namespace headroom::cli
