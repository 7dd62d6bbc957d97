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
    case DataFaultKind::kOtherSize:
      return "labelled at another size";
    case DataFaultKind::kNoBox:
      return "without a box";
    case DataFaultKind::kUnreadLabels:
      return "label file that no image reads";
    case DataFaultKind::kSharedLabels:
      return "label file of several images";
    case DataFaultKind::kOtherClasses:
      return "list of other classes";
  }
  return "fault";
}

std::string counted_faults(int64_t number, DataFaultKind kind) {
  const std::string name(to_string(kind));
  const auto with_plural = [&](const char* plural) {
    return cat(number, " ", number == 1 ? name : plural);
  };
  switch (kind) {
    case DataFaultKind::kBadLine:
    case DataFaultKind::kBadClass:
    case DataFaultKind::kZeroSize:
    case DataFaultKind::kNegativeSize:
    case DataFaultKind::kDuplicate:
    case DataFaultKind::kExtraValue:
    case DataFaultKind::kUnreadableImage:
    case DataFaultKind::kUnsupportedImage:
    case DataFaultKind::kUnknownImage:
      return counted(number, name);
    case DataFaultKind::kNotFinite:
      return with_plural("not finite numbers");
    case DataFaultKind::kOutOfRange:
      return with_plural("stick out of the image");
    case DataFaultKind::kUnreadableLabels:
      return counted(number, "unreadable label file");
    case DataFaultKind::kUnreadLabels:
      return with_plural("label files that no image reads");
    case DataFaultKind::kSharedLabels:
      return with_plural("label files of several images");
    case DataFaultKind::kOtherClasses:
      return with_plural("lists of other classes");
    case DataFaultKind::kOutside:
    case DataFaultKind::kInPixels:
    case DataFaultKind::kListedTwice:
    case DataFaultKind::kOtherSize:
    case DataFaultKind::kNoBox:
      break;
  }
  return with_plural(name.c_str());
}

std::string_view remedy_of(DataFaultKind kind) {
  switch (kind) {
    case DataFaultKind::kBadLine:
    case DataFaultKind::kNotFinite:
    case DataFaultKind::kBadClass:
    case DataFaultKind::kZeroSize:
    case DataFaultKind::kOutside:
      return "correct these labels, or go on without them";
    case DataFaultKind::kInPixels:
      return "write cx cy w h as fractions of the image's width and height";
    case DataFaultKind::kNegativeSize:
    case DataFaultKind::kOutOfRange:
    case DataFaultKind::kDuplicate:
    case DataFaultKind::kExtraValue:
    case DataFaultKind::kNoBox:
    case DataFaultKind::kListedTwice:
      return "repaired here; verify --fix-to DIR writes a corrected copy";
    case DataFaultKind::kOtherSize:
      return "look at a few boxes (train_batch0.jpg of a run); verify --fix-to "
             "DIR writes the labels as they are read here";
    case DataFaultKind::kUnreadableLabels:
    case DataFaultKind::kUnreadableImage:
      return "get these files again, or go on without them";
    case DataFaultKind::kUnsupportedImage:
      return "convert these images to JPEG or PNG";
    case DataFaultKind::kUnknownImage:
      return "correct the names of the images, or remove these labels";
    case DataFaultKind::kUnreadLabels:
      return "name each label file as its image, with the suffix .txt";
    case DataFaultKind::kSharedLabels:
      return "give each image a name of its own without suffix";
    case DataFaultKind::kOtherClasses:
      return "write `names` in the order of that list, or delete the list if "
             "it "
             "is out of date";
  }
  return "";
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
    const bool is_first = fault.kind == DataFaultKind::kOtherClasses;
    faults.insert(is_first ? faults.begin() : faults.end(), std::move(fault));
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
    text += (text.empty() ? "" : ", ") +
            counted_faults(counts[kind], static_cast<DataFaultKind>(kind));
  }
  return text;
}

std::string DataReport::objects_text() const {
  if (objects == boxes) return "";
  std::string text = counted(objects, "object") + " = " + counted(boxes, "box");
  if (crowds > 0) text += " + " + counted(crowds, "crowd");
  if (dropped > 0) text += cat(" + ", dropped, " dropped");
  if (left_out > 0) text += cat(" + ", left_out, " of images left out");
  return text;
}

std::vector<std::string> DataReport::remedies() const {
  constexpr size_t kPlaces = 3;
  std::array<std::vector<std::string>, kNumDataFaultKinds> places;
  for (const DataFault& fault : faults) {
    auto& own = places[static_cast<size_t>(fault.kind)];
    if (own.size() < kPlaces) own.push_back(short_line(fault.where, 8192));
  }
  std::vector<std::string> result;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const auto kind = static_cast<DataFaultKind>(i);
    result.push_back(cat(split, ": ", counted_faults(counts[i], kind),
                         ", first ", joined(places[i], ", "), ": ",
                         std::string(remedy_of(kind))));
  }
  return result;
}

std::vector<std::string> DataReport::lines(int64_t max_lines) const {
  std::string head =
      cat(split, ": ", counted(images, "image"), " (", background,
          " without boxes), ", counted(boxes, "box"));
  if (!table.empty()) head += ", labels of " + short_line(table, 8192);
  if (num_faults() > 0) {
    head += "; " + counted(num_faults(), "fault") + ": " + counts_text();
  }
  if (objects != boxes) head += "; " + objects_text();
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
