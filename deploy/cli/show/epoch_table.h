// EpochTable: formats a run for a terminal: a table with a line per epoch, and
// a live line below it.
//
//     Epoch    Memory    box    obj    cls  Images      P      R  mAP50    mAP
//      2/60   1.2 GiB  0.091  0.036  0.025     208  0.801  0.702  0.761  0.421
//      3/60   1.2 GiB  0.081  0.033  0.021  92%
// ████████▎
// 12/13  58.3 img/s
//
// A wide terminal shows more columns, a narrow one fewer; lines never wrap. The
// column Memory is for the rank that needs most. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "coordinator/run/run_status.h"
#include "deploy/cli/show/progress_line.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

struct EpochLine {
  TrainedEpoch trained = {};
  std::optional<ValidatedEpoch> validated = {};
  RankBytes memory = {};
  int64_t memory_limit = 0;  // 0 if there is no limit
  std::optional<double> eta_seconds = {};
};

// The names of the loss columns are those of `losses`. `columns` is the
// terminal's width; 0 if unknown, which shows all columns.
std::string epoch_header(int64_t num_epochs, const NamedLosses& losses,
                         size_t columns);
std::string epoch_table_line(const EpochLine& line, size_t columns);

// The live line of an epoch, of the validation after it, or of a run that only
// validates.
std::string live_line(const coordinator::RunStatus& status,
                      std::optional<double> eta_seconds, size_t columns,
                      const TerminalStyle& style);

}  // namespace headroom::cli
