#include "worker/data/labels/label_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "configs/yaml/line_reader.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/known_formats.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::labels {
namespace {

constexpr int64_t kMaxLabelFileBytes = int64_t{64} << 20;
constexpr size_t kBoxValues = 5;

std::string quoted(std::string_view line) {
  constexpr size_t kShown = 60;
  std::string text = "\"";
  for (const char c : line.substr(0, kShown)) {
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text + (line.size() > kShown ? "..\"" : "\"");
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

// The numbers of a line. Returns nullopt if any part of the line is not a
// number.
std::optional<std::vector<double>> parse_numbers(std::string_view line) {
  std::vector<double> values;
  size_t at = 0;
  while (true) {
    while (at < line.size() && is_space(line[at])) ++at;
    if (at == line.size()) return values;
    if (line[at] == '+') ++at;
    double value = 0;
    const auto [end, status] =
        std::from_chars(line.data() + at, line.data() + line.size(), value);
    const auto next = static_cast<size_t>(end - line.data());
    const bool ends = next == line.size() || is_space(line[next]);
    if (end == line.data() + at || !ends) return std::nullopt;
    // No valid coordinate is beyond the range of double, so a value that a
    // double cannot hold becomes infinite and is rejected later.
    if (status == std::errc::result_out_of_range) value = HUGE_VAL;
    values.push_back(value);
    at = next;
  }
}

class LineParser {
 public:
  LineParser(std::string_view file, const ClassRules& classes,
             const RowForm& form, codecs::ImageSize size, LabelFile& result)
      : file_(file),
        classes_(classes),
        num_classes_(static_cast<int64_t>(classes.names.size())),
        single_cls_(classes.single_cls),
        form_(form),
        size_(size),
        result_(result),
        rules_(result) {}

  void parse(std::string_view line, int64_t line_number) {
    line_ = line;
    line_number_ = line_number;
    rules_.at(cat(std::string(file_), ":", line_number));
    ++result_.objects;
    std::string plain;
    if (form_.has_commas || form_.has_decimal_commas) {
      plain = form_.plain_row(line);
      line = plain;
    }
    if (form_.has_names()) return parse_named(line);
    auto values = parse_numbers(line);
    if (!values) {
      return drop(DataFaultKind::kBadLine, "not numbers: " + quoted(line_));
    }
    if (form_.shape == RowForm::Shape::kKeypoints &&
        values->size() > kBoxValues) {
      values->resize(kBoxValues);
    }
    if (!check_count(values->size())) return;
    if (std::any_of(values->begin(), values->end(),
                    [](double value) { return !std::isfinite(value); })) {
      return drop(DataFaultKind::kNotFinite, quoted(line));
    }
    const bool polygon = values->size() > kBoxValues + 1;
    if (is_in_pixels(*values, polygon)) {
      rules_.note_class(values->front());
      return drop(DataFaultKind::kInPixels, quoted(line_));
    }
    auto class_index = rules_.class_of(values->front(), line_number,
                                       single_cls_ ? INT64_MAX : num_classes_);
    if (!class_index) return;
    if (single_cls_) class_index = 0;
    const auto corners =
        polygon ? polygon_corners(*values) : box_corners(*values);
    if (corners) add_box(*class_index, *corners, *values, polygon);
  }

 private:
  static bool is_in_pixels(const std::vector<double>& values, bool polygon) {
    const auto end =
        polygon ? values.end()
                : values.begin() + static_cast<std::ptrdiff_t>(kBoxValues);
    return std::any_of(values.begin() + 1, end,
                       [](double value) { return value > kMostFraction; });
  }

  // The numbers of the words [begin, end). Reports a word that is not a number.
  std::optional<std::vector<double>> numbers_of(
      std::span<const std::string_view> words) {
    std::vector<double> numbers;
    for (const std::string_view word : words) {
      const auto number = parse_number(word);
      if (!number) {
        drop(DataFaultKind::kBadLine, "not numbers: " + quoted(line_));
        return std::nullopt;
      }
      numbers.push_back(*number);
    }
    return numbers;
  }

  // Parses a row that contains the name of its class, in the order of
  // RowForm::Shape.
  void parse_named(std::string_view row) {
    const std::vector<std::string_view> all = words_of(row);
    const std::span<const std::string_view> words(all);
    const bool is_dota = form_.shape == RowForm::Shape::kDota;
    const bool is_kitti = form_.shape == RowForm::Shape::kKitti;
    constexpr size_t kCorners = 4, kQuad = 8, kKittiBox = 4, kKitti = 15;
    const size_t least = is_kitti ? kKitti : is_dota ? kQuad + 1 : kCorners + 1;
    if (words.size() < least) {
      return drop(DataFaultKind::kBadLine,
                  cat(counted(std::ssize(words), "value"), " instead of ",
                      least, ": ", quoted(line_)));
    }
    const auto numbers =
        numbers_of(is_dota    ? words.first(kQuad)
                   : is_kitti ? words.subspan(kKittiBox, kCorners)
                              : words.last(kCorners));
    if (!numbers) return;
    const std::string name =
        is_dota    ? std::string(words[kQuad])
        : is_kitti ? std::string(words[0])
                   : joined(words.first(words.size() - kCorners), " ");
    if (is_kitti && name == "DontCare") {
      ++result_.crowds;
      return;
    }
    const auto class_index = classes_.find(name, line_number_, result_);
    if (!class_index) return;
    if (form_.shape == RowForm::Shape::kNamed) {
      std::vector<double> values = {0};
      values.insert(values.end(), numbers->begin(), numbers->end());
      if (is_in_pixels(values, false)) {
        return drop(DataFaultKind::kInPixels, quoted(line_));
      }
      const auto corners = box_corners(values);
      if (corners) add_box(*class_index, *corners, values, false);
      return;
    }
    BoxExtent box{(*numbers)[0], (*numbers)[1], (*numbers)[2], (*numbers)[3]};
    if (is_dota) {
      PixelRing ring;
      for (size_t i = 0; i < kQuad; i += 2) {
        ring.push_back({(*numbers)[i], (*numbers)[i + 1]});
      }
      box = extent_of({&ring, 1});
    }
    rules_.add_pixels(*class_index, box, size_);
  }

  void drop(DataFaultKind kind, std::string what) {
    rules_.drop(kind, std::move(what));
  }

  bool check_count(size_t count) {
    if (count < kBoxValues) {
      drop(DataFaultKind::kBadLine,
           counted(static_cast<int64_t>(count), "value") +
               " instead of 5: " + quoted(line_));
      return false;
    }
    if (count > kBoxValues + 1 && count % 2 == 0) {
      drop(DataFaultKind::kBadLine,
           cat("a polygon of ", count - 1, " numbers: x and y do not pair"));
      return false;
    }
    return true;
  }

  // Converts the box in `values` to centre and size if the row has another
  // form.
  std::optional<BoxExtent> box_corners(std::vector<double>& values) {
    if (form_.shape == RowForm::Shape::kCorners) {
      const auto [x1, y1, x2, y2] =
          std::tie(values[1], values[2], values[3], values[4]);
      values = {values[0], (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1};
    }
    double& w = values[3];
    double& h = values[4];
    if (form_.shape == RowForm::Shape::kTopLeft) {
      values[1] += w / 2;
      values[2] += h / 2;
    }
    const std::string size = "w " + short_number(w) + ", h " + short_number(h);
    if (w == 0 || h == 0) {
      drop(DataFaultKind::kZeroSize, size);
      return std::nullopt;
    }
    if (w < 0 || h < 0) {
      rules_.fault(DataFaultKind::kNegativeSize, size,
                   "taken as positive, box kept");
      w = std::abs(w);
      h = std::abs(h);
    }
    if (values.size() > kBoxValues) {
      rules_.fault(DataFaultKind::kExtraValue, short_number(values[5]),
                   "value ignored, box kept");
    }
    return BoxExtent{values[1] - w / 2, values[2] - h / 2, values[1] + w / 2,
                     values[2] + h / 2};
  }

  std::optional<BoxExtent> polygon_corners(const std::vector<double>& values) {
    BoxExtent corners{values[1], values[2], values[1], values[2]};
    for (size_t i = 1; i < values.size(); i += 2) {
      corners.x1 = std::min(corners.x1, values[i]);
      corners.x2 = std::max(corners.x2, values[i]);
      corners.y1 = std::min(corners.y1, values[i + 1]);
      corners.y2 = std::max(corners.y2, values[i + 1]);
    }
    if (corners.x1 == corners.x2 || corners.y1 == corners.y2) {
      drop(DataFaultKind::kZeroSize, "a polygon without area");
      return std::nullopt;
    }
    return corners;
  }

  void add_box(int32_t class_index, const BoxExtent& corners,
               const std::vector<double>& values, bool polygon) {
    std::optional<BoxLabel> as_written;
    if (!polygon) {
      as_written =
          BoxLabel{class_index, static_cast<float>(values[1]),
                   static_cast<float>(values[2]), static_cast<float>(values[3]),
                   static_cast<float>(values[4])};
    }
    Outline outline;
    for (size_t i = 1; polygon && i < values.size(); i += 2) {
      outline.push_back({values[i], values[i + 1]});
    }
    const size_t before = result_.boxes.size();
    rules_.add(class_index, corners, as_written, quoted(line_),
               std::move(outline));
    if (polygon && result_.boxes.size() > before) ++result_.num_polygons;
  }

  std::string_view file_;
  const ClassRules& classes_;
  int64_t num_classes_;
  bool single_cls_;
  const RowForm& form_;
  codecs::ImageSize size_;
  LabelFile& result_;
  BoxRules rules_;
  std::string_view line_;
  int64_t line_number_ = 0;
};

template <typename Number>
std::string exact(Number value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

LabelFile parse_label_file(std::string_view text, std::string_view file,
                           int64_t num_classes, bool single_cls) {
  const ClassRules classes{
      std::vector<std::string>(static_cast<size_t>(num_classes)), single_cls};
  return parse_label_file(text, file, classes, RowForm(), {});
}

LabelFile parse_label_file(std::string_view text, std::string_view file,
                           const ClassRules& classes, const RowForm& form,
                           codecs::ImageSize size) {
  LabelFile result;
  LineParser parser(file, classes, form, size, result);
  LineReader lines(text);
  while (lines.next()) {
    if (!is_no_row(lines.line())) parser.parse(lines.line(), lines.number());
  }
  return result;
}

void add_classes(const LabelFile& labels, DataReport& report) {
  if (labels.unknown_class) ++report.files_of_unknown_classes;
  report.largest_class = std::max(report.largest_class, labels.largest_class);
  report.has_class_zero = report.has_class_zero || labels.has_class_zero;
}

std::optional<std::string> read_label_text(const std::string& file,
                                           std::string& reason) {
  const packs::OpenFile open(file);
  if (open.error() == ENOENT || open.error() == ENOTDIR) return "";
  struct stat status {};
  if (open.descriptor() < 0 || ::fstat(open.descriptor(), &status) != 0) {
    reason = "cannot be opened";
    return std::nullopt;
  }
  if (!S_ISREG(status.st_mode)) {
    reason = "is no file";
    return std::nullopt;
  }
  if (status.st_size > kMaxLabelFileBytes) {
    reason = format_bytes(status.st_size) + " of labels";
    return std::nullopt;
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  if (packs::read_at(open.descriptor(), 0, text.data(), text.size()) !=
      text.size()) {
    reason = "cannot be read to its end";
    return std::nullopt;
  }
  return text;
}

std::string label_text(std::span<const BoxLabel> boxes,
                       std::span<const Outline> outlines) {
  std::string text;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxLabel& box = boxes[i];
    text += std::to_string(box.class_index);
    if (i < outlines.size() && !outlines[i].empty()) {
      for (const OutlinePoint& point : outlines[i]) {
        text += " " + exact(point.x) + " " + exact(point.y);
      }
    } else {
      for (const float value : {box.cx, box.cy, box.w, box.h}) {
        text += " " + exact(value);
      }
    }
    text += "\n";
  }
  return text;
}

std::string data_yaml_text(const std::vector<std::string>& class_names,
                           const std::vector<std::string>& splits,
                           const std::string& range) {
  // JSON's quoting is valid YAML.
  std::string text =
      "names: " + nlohmann::json(class_names).dump() + "\n" + range;
  for (const std::string& split : splits) {
    text += split + ": images/" + split + "\n";
  }
  return text;
}

}  // namespace headroom::labels
