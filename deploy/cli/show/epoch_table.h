// EpochTable: a run on a terminal, as a table with a line for each epoch and a
// line for what goes on below it.
//
//     Epoch    Memory    box    obj    cls  Images      P      R  mAP50    mAP
//      2/60   1.2 GiB  0.091  0.036  0.025     208  0.801  0.702  0.761  0.421
//      3/60   1.2 GiB  0.081  0.033  0.021  92% |████████▎| 12/13  58.3 img/s
//
// A wide terminal has columns more, a narrow one fewer: lines never wrap. The
// memory is that of the rank that needs most. All of it is pure formatting.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "coordinator/run/run_status.h"
#include "deploy/cli/show/progress_line.h"
#include "parallel/base/terminal_style.h"

namespace headroom::cli {

struct EpochLine {
  TrainedEpoch trained = {};
  std::optional<ValidatedEpoch> validated = {};
  RankBytes memory = {};
  int64_t memory_limit = 0;  // 0: no limit
  std::optional<double> eta_seconds = {};
};

// `columns` of the terminal; 0 where they are not known, which shows all.
std::string epoch_header(int64_t num_epochs, size_t columns);
std::string epoch_table_line(const EpochLine& line, size_t columns);

// What goes on: an epoch, the validation after it, or a validation alone.
std::string live_line(const coordinator::RunStatus& status,
                      std::optional<double> eta_seconds, size_t columns,
                      const TerminalStyle& style);

}  // namespace headroom::cli
