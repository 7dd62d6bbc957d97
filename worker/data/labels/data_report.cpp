#include "worker/data/labels/data_report.h"

#include <algorithm>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::labels {

std::string_view to_string(DataFaultKind kind) {
  switch (kind) {
    case DataFaultKind::kBadLine:
      return "bad line";
    case DataFaultKind::kNotFinite:
      return "not a finite number";
    case DataFaultKind::kBadClass:
      return "bad class";
    case DataFaultKind::kZeroSize:
      return "zero size";
    case DataFaultKind::kNegativeSize:
      return "negative size";
    case DataFaultKind::kOutOfRange:
      return "sticks out of the image";
    case DataFaultKind::kOutside:
      return "outside the image";
    case DataFaultKind::kInPixels:
      return "in pixels";
    case DataFaultKind::kDuplicate:
      return "duplicate";
    case DataFaultKind::kExtraValue:
      return "sixth value";
    case DataFaultKind::kUnreadableLabels:
      return "unreadable labels";
    case DataFaultKind::kUnreadableImage:
      return "unreadable image";
    case DataFaultKind::kUnsupportedImage:
      return "unsupported format";
    case DataFaultKind::kListedTwice:
      return "listed twice";
    case DataFaultKind::kUnknownImage:
      return "unknown image";
  }
  return "fault";
}

// File names and quoted text may contain any bytes, so both are shortened to
// one printable line.
std::string to_string(const DataFault& fault) {
  constexpr size_t kLongest = 8192;
  std::string text = short_line(fault.where, kLongest) + ": ";
  text += to_string(fault.kind);
  if (!fault.what.empty()) {
    text += " (" + short_line(fault.what, kLongest) + ")";
  }
  return text + ": " + fault.fix;
}

void DataReport::add(DataFault fault) {
  ++counts[static_cast<size_t>(fault.kind)];
  if (static_cast<int64_t>(faults.size()) < kMaxDataFaults) {
    faults.push_back(std::move(fault));
  }
}

int64_t DataReport::num_faults() const {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

std::string DataReport::counts_text() const {
  std::string text;
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0) continue;
    text += cat(text.empty() ? "" : ", ", counts[kind], " ");
    text += to_string(static_cast<DataFaultKind>(kind));
  }
  return text;
}

std::vector<std::string> DataReport::lines(int64_t max_lines) const {
  std::string head =
      cat(split, ": ", counted(images, "image"), " (", background,
          " without boxes), ", counted(boxes, "box"));
  if (!table.empty()) head += ", labels of " + short_line(table, 8192);
  if (num_faults() > 0) {
    head += "; " + counted(num_faults(), "fault") + ": " + counts_text();
  }
  std::vector<std::string> result{head};
  for (const std::string& note : notes) {
    result.push_back(short_line(note, 8192));
  }
  const auto shown =
      std::min<int64_t>(max_lines, static_cast<int64_t>(faults.size()));
  for (int64_t i = 0; i < shown; ++i) result.push_back(to_string(faults[i]));
  if (shown < num_faults() && max_lines > 0) {
    result.push_back(cat("and ", num_faults() - shown, " more"));
  }
  return result;
}

}  // namespace headroom::labels
