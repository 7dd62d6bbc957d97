#include "deploy/cli/show/epoch_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

enum class Column {
  kEpoch,
  kMemory,
  kPredicted,
  kLimit,
  kLoss1,  // the loss terms, in their order
  kLoss2,
  kLoss3,
  kImages,
  kTime,
  kPrecision,
  kRecall,
  kMap50,
  kMap,
  kEta
};

struct ColumnShape {
  Column column;
  const char* name;
  size_t width;  // includes the space before the column
  int rank;      // columns with the largest ranks are left out first
};

// The columns in the order of the table.
constexpr std::array<ColumnShape, 14> kColumns = {{
    {Column::kEpoch, "Epoch", 0, 0},
    {Column::kMemory, "Memory", 10, 5},
    {Column::kPredicted, "Predicted", 11, 9},
    {Column::kLimit, "Limit", 10, 10},
    {Column::kLoss1, "", 7, 3},
    {Column::kLoss2, "", 7, 4},
    {Column::kLoss3, "", 7, 4},
    {Column::kImages, "Images", 8, 7},
    {Column::kTime, "Time", 8, 8},
    {Column::kPrecision, "P", 7, 6},
    {Column::kRecall, "R", 7, 6},
    {Column::kMap50, "mAP50", 7, 2},
    {Column::kMap, "mAP", 7, 1},
    {Column::kEta, "Left", 9, 11},
}};
constexpr int kHighestRank = 11;

// The width of the narrowest useful bar with its count.
constexpr size_t kFewestBarColumns = 24;

// The width of "100/100" with its margin.
size_t epoch_width(int64_t num_epochs) {
  return std::max<size_t>(7, 2 * std::to_string(num_epochs).size() + 2);
}

size_t width_of(const ColumnShape& shape, int64_t num_epochs) {
  return shape.column == Column::kEpoch ? epoch_width(num_epochs) : shape.width;
}

// The columns that fit, among those for which `belongs` returns true.
template <typename Predicate>
std::vector<ColumnShape> columns_within(size_t columns, int64_t num_epochs,
                                        const Predicate& belongs) {
  std::vector<ColumnShape> shapes;
  for (int most = kHighestRank; most >= 0; --most) {
    shapes.clear();
    size_t taken = 0;
    for (const ColumnShape& shape : kColumns) {
      if (shape.rank > most || !belongs(shape)) continue;
      shapes.push_back(shape);
      taken += width_of(shape, num_epochs);
    }
    if (columns == 0 || taken <= columns) break;
  }
  return shapes;
}

std::vector<ColumnShape> all_within(size_t columns, int64_t num_epochs) {
  return columns_within(columns, num_epochs,
                        [](const ColumnShape&) { return true; });
}

std::string right(const std::string& text, size_t width) {
  const size_t taken = display_width(text);
  return std::string(width > taken ? width - taken : 0, ' ') + text;
}

using Cells = std::map<Column, std::string>;

std::string cells_text(const std::vector<ColumnShape>& shapes,
                       const Cells& cells, int64_t num_epochs) {
  std::string text;
  for (const ColumnShape& shape : shapes) {
    const auto cell = cells.find(shape.column);
    text += right(cell == cells.end() ? "-" : cell->second,
                  width_of(shape, num_epochs));
  }
  return text;
}

std::string epoch_cell(int64_t epoch, int64_t num_epochs) {
  return cat(epoch + 1, "/", num_epochs);
}

// Calls `add` for the column of each loss.
template <typename Add>
void for_each_loss(const NamedLosses& losses, const Add& add) {
  constexpr std::array kLosses = {Column::kLoss1, Column::kLoss2,
                                  Column::kLoss3};
  for (size_t i = 0; i < std::min(losses.size(), kLosses.size()); ++i) {
    add(kLosses[i], losses[i]);
  }
}

void add_losses(const NamedLosses& losses, Cells& cells) {
  for_each_loss(losses, [&](Column column, const NamedLoss& loss) {
    cells[column] = fixed_text(loss.value, 3);
  });
}

Cells cells_of_memory(const RankBytes& memory, int64_t limit) {
  return {{Column::kMemory, size_or_dash(memory.measured)},
          {Column::kPredicted, size_or_dash(memory.predicted)},
          {Column::kLimit, size_or_dash(limit)}};
}

Progress bar_of_epoch(const wire::RunProgress& progress,
                      std::optional<double> eta_seconds) {
  Progress bar{.done = progress.step_in_epoch,
               .total = progress.steps_per_epoch,
               .noun = "",
               .per_second = progress.images_per_second,
               .rate_unit = " img",
               .seconds_left = eta_seconds};
  if (progress.phase == wire::WorkerPhase::kCheckpoint) bar.label = "saving";
  if (progress.phase != wire::WorkerPhase::kValidate) return bar;
  bar.label = "validating";
  if (progress.images_to_validate == 0) return bar;
  bar.done = progress.images_validated;
  bar.total = progress.images_to_validate;
  bar.per_second = 0;  // the rate is known for training only
  return bar;
}

// The epoch's cells below their headings, as far as there is room, then the
// bar.
std::string epoch_in_progress(const coordinator::RunStatus& status,
                              std::optional<double> eta_seconds, size_t columns,
                              const TerminalStyle& style) {
  const wire::RunProgress& progress = status.progress;
  Cells cells = cells_of_memory(fullest_rank(status), status.memory_limit);
  cells[Column::kEpoch] = epoch_cell(progress.epoch, progress.num_epochs);
  add_losses(progress.losses, cells);
  const std::vector<ColumnShape> shown =
      all_within(columns, progress.num_epochs);
  const auto precedes_the_bar = [&](const ColumnShape& shape) {
    return shape.column < Column::kImages &&
           std::ranges::any_of(shown, [&](const ColumnShape& other) {
             return other.column == shape.column;
           });
  };
  const size_t room = columns > kFewestBarColumns
                          ? columns - kFewestBarColumns
                          : std::min<size_t>(columns, 1);
  const std::string before =
      cells_text(columns_within(room, progress.num_epochs, precedes_the_bar),
                 cells, progress.num_epochs) +
      "  ";
  const size_t taken = display_width(before);
  if (columns > 0 && taken >= columns) {
    return cut_line(before, columns, style.is_unicode);
  }
  return before + progress_bar(bar_of_epoch(progress, eta_seconds),
                               columns == 0 ? 0 : columns - taken, style);
}

}  // namespace

std::string epoch_header(int64_t num_epochs, const NamedLosses& losses,
                         size_t columns) {
  Cells names;
  for_each_loss(losses, [&](Column column, const NamedLoss& loss) {
    names[column] = loss.name;
  });
  std::string text;
  for (const ColumnShape& shape : all_within(columns, num_epochs)) {
    const auto name = names.find(shape.column);
    text += right(name == names.end() ? shape.name : name->second,
                  width_of(shape, num_epochs));
  }
  return text;
}

std::string epoch_table_line(const EpochLine& line, size_t columns) {
  const TrainedEpoch& trained = line.trained;
  Cells cells = cells_of_memory(line.memory, line.memory_limit);
  cells[Column::kEpoch] = epoch_cell(trained.epoch, trained.num_epochs);
  add_losses(trained.losses, cells);
  if (trained.images > 0) {
    cells[Column::kImages] = std::to_string(trained.images);
    cells[Column::kTime] = trained.seconds < 60
                               ? fixed_text(trained.seconds, 1) + "s"
                               : whole_seconds(trained.seconds);
  }
  if (const auto& validated = line.validated) {
    cells[Column::kPrecision] = fixed_text(validated->precision, 3);
    cells[Column::kRecall] = fixed_text(validated->recall, 3);
    cells[Column::kMap50] = fixed_text(validated->map50, 3);
    cells[Column::kMap] = fixed_text(validated->map, 3);
  }
  if (line.eta_seconds && *line.eta_seconds >= 0.5) {
    cells[Column::kEta] = whole_seconds(*line.eta_seconds);
  }
  return cells_text(all_within(columns, trained.num_epochs), cells,
                    trained.num_epochs);
}

std::string live_line(const coordinator::RunStatus& status,
                      std::optional<double> eta_seconds, size_t columns,
                      const TerminalStyle& style) {
  const wire::RunProgress& progress = status.progress;
  if (is_validation(status)) {
    Progress bar = progress_of_run(status, eta_seconds);
    bar.label = "validating";
    return progress_bar(bar, columns, style);
  }
  if (progress.num_epochs == 0) return cut_line("starting", columns, true);
  return epoch_in_progress(status, eta_seconds, columns, style);
}

}  // namespace headroom::cli
