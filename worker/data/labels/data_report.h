// DataReport: what was wrong with a data set and what was done about it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::labels {

enum class DataFaultKind {
  kBadLine,    // not numbers, too few or too many values
  kNotFinite,  // NaN or infinity
  kBadClass,   // negative or not a whole number
  kZeroSize,   // no width or height
  kNegativeSize,
  kOutOfRange,        // sticks out by more than the rounding of 6 decimals
  kOutside,           // nothing of it lies in the image
  kDuplicate,         // the same row twice
  kExtraValue,        // a sixth value, as detectors write it
  kUnreadableLabels,  // the label file exists and cannot be read
  kUnreadableImage,   // not an image, damaged, too large
  kUnsupportedImage,  // a format that is not decoded here
  kListedTwice,
  kUnknownImage  // a box of an image that its file does not list
};
inline constexpr int kNumDataFaultKinds = 14;

std::string_view to_string(DataFaultKind kind);

struct DataFault {
  DataFaultKind kind = DataFaultKind::kBadLine;
  std::string where;  // file or file:line
  std::string what;   // with the offending values
  std::string fix;    // what was done
};

// "labels/a.txt:3: zero size (w 0, h 0.1): box dropped"
std::string to_string(const DataFault& fault);

struct DataReport {
  std::string split;       // "train"
  int64_t images = 0;      // kept
  int64_t background = 0;  // of these, without a box
  int64_t boxes = 0;       // kept
  std::array<int64_t, kNumDataFaultKinds> counts{};
  // In the order of files and lines; at most kMaxDataFaults are kept, counts
  // are of all.
  std::vector<DataFault> faults;

  void add(DataFault fault);
  int64_t num_faults() const;
  // One line of numbers, then the first `max_lines` faults, then how many more.
  std::vector<std::string> lines(int64_t max_lines) const;
};

inline constexpr int64_t kMaxDataFaults = 100'000;

}  // namespace headroom::labels
