// DataReport: the faults found in a data set and how each was handled.
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
  kOutOfRange,        // exceeds the image by more than rounding to 6 decimals
  kOutside,           // entirely outside the image
  kInPixels,          // too large to be fractions of the image
  kDuplicate,         // the same label twice in an image
  kExtraValue,        // a sixth value: a detector's confidence
  kUnreadableLabels,  // the label file exists and cannot be read
  kUnreadableImage,   // not an image, damaged, too large
  kUnsupportedImage,  // a format that is not decoded here
  kListedTwice,
  kUnknownImage,  // a box of an image that is not listed
  kOtherSize,     // labelled at another size than the image has
  kNoBox,         // an outline without its box
  kUnreadLabels,  // a label file that belongs to no image
  kSharedLabels,  // a label file that belongs to several images
  kOtherClasses   // a list beside the labels with other classes than `names`
};
inline constexpr int kNumDataFaultKinds = 20;

std::string_view to_string(DataFaultKind kind);

// "1 bad line", "3 bad lines".
std::string counted_faults(int64_t number, DataFaultKind kind);

// What to do about faults of a kind: one sentence.
std::string_view remedy_of(DataFaultKind kind);

struct DataFault {
  DataFaultKind kind = DataFaultKind::kBadLine;
  std::string where;       // file or file:line of the fault
  std::string what;        // the offending values
  std::string fix;         // how the fault was handled
  bool costs_box = false;  // whether the fault cost an object
};

// "labels/a.txt:3: zero size (w 0, h 0.1): box dropped"
std::string to_string(const DataFault& fault);

struct DataReport {
  std::string split;  // for example "train"
  // A table of labels that was found and used although the data file does not
  // name it; "" if there is none.
  std::string table;
  std::string row_form;    // SplitImages::row_form of this split
  int64_t images = 0;      // images kept
  int64_t background = 0;  // kept images without a box
  int64_t boxes = 0;       // boxes kept
  // Every object of the label files has one of four ends: objects = boxes +
  // crowds + dropped + left_out.
  int64_t objects = 0;
  int64_t crowds = 0;    // regions that are not trained on
  int64_t dropped = 0;   // objects that were dropped, each with a fault
  int64_t left_out = 0;  // objects of images that were left out
  // Number of label files with a class that is not in `names`.
  int64_t files_of_unknown_classes = 0;
  int64_t largest_class = -1;  // largest class number in the label files
  bool has_class_zero = false;
  std::array<int64_t, kNumDataFaultKinds> counts{};
  // Faults in the order of files and lines, after those of kOtherClasses, which
  // may concern every box. At most kMaxDataFaults are kept, but all are
  // counted.
  std::vector<DataFault> faults;
  // Notes of label readers and the file index (folder_index.h), one line each.
  std::vector<std::string> notes;

  void add(DataFault fault);
  int64_t count_of(DataFaultKind kind) const {
    return counts[static_cast<size_t>(kind)];
  }
  // Whether classes count from 1: the largest is `num_classes`, none is 0, and
  // no list says that there are other classes.
  bool counts_classes_from_one(int64_t num_classes) const {
    return largest_class == num_classes && !has_class_zero &&
           count_of(DataFaultKind::kOtherClasses) == 0;
  }
  int64_t num_faults() const;
  // The counts by kind: "3 bad lines, 1 duplicate".
  std::string counts_text() const;
  // "8 objects = 6 boxes + 1 crowd + 1 dropped"; "" if all objects are kept.
  std::string objects_text() const;
  // Returns one line for each kind of fault, with its count, its first three
  // places and its remedy.
  std::vector<std::string> remedies() const;
  // One line of totals, then the notes, then the first `max_lines` faults, then
  // the number of faults left out.
  std::vector<std::string> lines(int64_t max_lines) const;
};

inline constexpr int64_t kMaxDataFaults = 100'000;

}  // namespace headroom::labels
