// Reads tables with one box per line, as in the tutorials of TensorFlow's
// detectors:
//
//   filename,width,height,class,xmin,ymin,xmax,ymax
//   a.jpg,640,480,cat,10,20,110,220
//
// Semicolons or tabs may separate the columns, as spreadsheets write them.
// Corners are pixels of the image, or fractions if all corners of the table lie
// within 0 to 1. The columns width and height are compared with the image's
// size (BoxRules::labelled_at). If the data file names the table, an image
// without a line is not part of the data set. If the table is not named but was
// found beside the images, an image without a line is background.

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/yaml/line_reader.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kColumns{"filename", "class", "xmin",
                                                   "ymin",     "xmax",  "ymax"};

struct Field {
  std::string text;
  size_t column = 1;  // column of its first character
};

struct Fields {
  std::vector<Field> all{1};
  size_t open_quote = 0;  // column of an unclosed quote; 0 for none
};

// The character between the names of columns in the first line.
char separator_of(std::string_view header) {
  for (const char separator : {',', ';', '\t'}) {
    if (header.find(separator) != std::string_view::npos) return separator;
  }
  return ',';
}

// Splits a line into fields. A quoted field may contain separators, and doubled
// quotes for a quote.
Fields fields_of(std::string_view line, char separator) {
  Fields fields;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_quoted = fields.open_quote > 0;
    const bool is_doubled = is_quoted && line.substr(i).starts_with("\"\"");
    if (is_doubled) {
      fields.all.back().text += line[i++];
    } else if (line[i] == '"') {
      fields.open_quote = is_quoted ? 0 : i + 1;
    } else if (line[i] == separator && !is_quoted) {
      fields.all.push_back({"", i + 2});
    } else if (line[i] != '\r') {
      fields.all.back().text += line[i];
    }
  }
  return fields;
}

struct CsvBox {
  int64_t line = 0;
  Field class_name;
  std::array<Field, 4> corners = {};  // xmin, ymin, xmax, ymax as written
  codecs::ImageSize stated = {};      // {0, 0} if the table states none

  // Returns nullopt if a corner is no number.
  std::optional<BoxExtent> extent() const {
    const auto x1 = parse_number(corners[0].text);
    const auto y1 = parse_number(corners[1].text);
    const auto x2 = parse_number(corners[2].text);
    const auto y2 = parse_number(corners[3].text);
    if (!x1 || !y1 || !x2 || !y2) return std::nullopt;
    return BoxExtent{*x1, *y1, *x2, *y2};
  }
};

// Finds the image for a file name in a table.
class ImageNames {
 public:
  virtual ~ImageNames() = default;
  // Returns nullopt and sets `why` if the name does not identify one image.
  virtual std::optional<std::string> find(const std::string& name,
                                          std::string& why) const = 0;
};

// Looks for the file in several folders. If no folder contains it, returns its
// path in the first folder.
class NamesInFolders : public ImageNames {
 public:
  NamesInFolders(const fs::path& file, const fs::path& images) {
    if (images.empty()) {
      // "train" for train_labels.csv
      const std::string stem = file.stem().string();
      folders_ = {file.parent_path(),
                  file.parent_path() / stem.substr(0, stem.find("_labels"))};
    } else {
      folders_ = {images};
    }
  }

  std::optional<std::string> find(const std::string& name,
                                  std::string&) const override {
    std::error_code error;
    const auto found = std::ranges::find_if(folders_, [&](const fs::path& f) {
      return fs::exists(f / name, error);
    });
    const fs::path& folder = found == folders_.end() ? folders_[0] : *found;
    return (folder / name).lexically_normal().string();
  }

 private:
  std::vector<fs::path> folders_;
};

// Looks for the name among the images of a split. It must match exactly one
// image.
class NamesOfImages : public ImageNames {
 public:
  explicit NamesOfImages(const std::vector<std::string>& images) {
    for (const std::string& image : images) {
      by_name_[image.substr(image.rfind('/') + 1)].push_back(image);
    }
  }

  std::optional<std::string> find(const std::string& name,
                                  std::string& why) const override {
    const std::string ending = "/" + fs::path(name).lexically_normal().string();
    std::vector<std::string> found;
    const auto named = by_name_.find(fs::path(name).filename().string());
    if (named != by_name_.end()) {
      std::ranges::copy_if(
          named->second, std::back_inserter(found),
          [&](const std::string& path) { return path.ends_with(ending); });
    }
    if (found.size() == 1) return found.front();
    why = found.empty() ? "no image of the split is called '" + name + "'"
                        : "'" + name + "' is " + found[0] + " and " + found[1];
    return std::nullopt;
  }

 private:
  std::map<std::string, std::vector<std::string>> by_name_;
};

// Indices of the images whose names were read from the table so far. Several
// names may refer to the same image.
struct NamedImages {
  std::map<std::string, std::optional<size_t>> by_name;
  std::map<std::string, size_t> by_path;
};

class CsvLabels : public TableLabels {
 public:
  CsvLabels(const fs::path& file, const ImageNames& names, ClassRules classes,
            DataReport& report)
      : TableLabels(file, std::move(classes)) {
    std::ifstream stream(file_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    LineReader lines(text);
    read_header(lines.next() ? lines.line() : std::string_view());
    NamedImages known;
    while (lines.next()) {
      if (trimmed(lines.line()).empty()) continue;
      add(fields_of(lines.line(), separator_), lines.number(), names, known,
          report);
    }
    std::vector<BoxExtent> corners;
    for (const std::vector<CsvBox>& boxes : boxes_) {
      for (const CsvBox& box : boxes) {
        if (const auto extent = box.extent()) corners.push_back(*extent);
      }
    }
    are_fractions_ = are_fractions(corners);
    if (!are_fractions_) return;
    report.notes.push_back(report.split + ": all corners in " + file_ +
                           " lie within 0 to 1 and are taken as fractions of "
                           "the images");
  }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    ImageLabels result;
    result.file = file_;
    BoxRules rules(result.labels);
    std::vector<BoxExtent> extents;
    codecs::ImageSize stated;
    for (const CsvBox& box : boxes_[index]) {
      if (const auto extent = box.extent()) extents.push_back(*extent);
      stated = box.stated;
    }
    if (!are_fractions_ && !boxes_[index].empty()) {
      rules.at(TableLabels::place(boxes_[index].front().line));
      rules.labelled_at(stated, size, images_[index], extents);
    }
    for (const CsvBox& box : boxes_[index]) {
      ++result.labels.objects;
      const Field* wrong = nullptr;
      for (size_t i = box.corners.size(); i-- > 0;) {
        if (!parse_number(box.corners[i].text)) wrong = &box.corners[i];
      }
      rules.at(place(box.line, (wrong ? *wrong : box.corners[0]).column));
      if (wrong != nullptr) {
        rules.drop(
            DataFaultKind::kBadLine,
            std::string(
                kColumns[2 + static_cast<size_t>(wrong - box.corners.data())]) +
                " '" + wrong->text + "' is no number");
        continue;
      }
      const auto class_index =
          classes_.find(box.class_name.text, box.line, result.labels);
      if (!class_index) continue;
      BoxExtent extent = *box.extent();
      if (are_fractions_) {
        extent = pixels_of_fractions(extent, size);
      }
      rules.add_pixels(*class_index, extent, size);
    }
    return result;
  }

 private:
  // A place in the format of compiler messages: "train_labels.csv:7:12".
  std::string place(int64_t line, size_t column) const {
    return cat(TableLabels::place(line), ":", column);
  }

  void read_header(std::string_view line) {
    separator_ = separator_of(line);
    std::vector<Field> names = fields_of(line, separator_).all;
    for (Field& name : names) name.text = std::string(trimmed(name.text));
    const auto column_of = [&](std::string_view name) {
      return static_cast<size_t>(std::ranges::find(names, name, &Field::text) -
                                 names.begin());
    };
    stated_ = {column_of("width"), column_of("height")};
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const auto found = std::ranges::find(names, kColumns[i], &Field::text);
      if (found == names.end()) {
        refuse_known_format(file_, line);
        const std::string kind = to_string(foreign_kind(line));
        throw Error("data",
                    file_ + " has no column '" + std::string(kColumns[i]) +
                        "' in its first line" +
                        (kind.empty() ? "" : " (it is " + kind + ")"),
                    "write the names of the columns there: "
                    "filename,width,height,class,xmin,ymin,xmax,ymax",
                    ExitCode::kData);
      }
      columns_[i] = static_cast<size_t>(found - names.begin());
    }
  }

  void add(const Fields& line_fields, int64_t line, const ImageNames& names,
           NamedImages& known, DataReport& report) {
    const std::vector<Field>& fields = line_fields.all;
    ++report.objects;
    ++report.dropped;
    if (line_fields.open_quote > 0) {
      report.add({DataFaultKind::kBadLine, place(line, line_fields.open_quote),
                  "the quote is not closed", "box dropped"});
      return;
    }
    if (fields.size() <= std::ranges::max(columns_)) {
      report.add({DataFaultKind::kBadLine, place(line, fields.back().column),
                  counted(std::ssize(fields), "field"), "box dropped"});
      return;
    }
    Field name = fields[columns_[0]];
    name.text = std::string(trimmed(name.text));
    if (!check_name("filename", name.text, place(line, name.column), report)) {
      return;
    }
    const std::optional<size_t> at =
        index_of(name.text, place(line, name.column), names, known, report);
    if (!at) return;
    --report.objects;  // counted again with its image
    --report.dropped;
    CsvBox box = {.line = line, .class_name = fields[columns_[1]]};
    const auto side = [&](size_t column) {
      const auto value = column < fields.size()
                             ? parse_number(fields[column].text)
                             : std::nullopt;
      return value && *value >= 1 && *value <= 1e9
                 ? static_cast<int32_t>(*value)
                 : 0;
    };
    box.stated = {side(stated_[1]), side(stated_[0])};
    for (size_t i = 0; i < box.corners.size(); ++i) {
      box.corners[i] = fields[columns_[i + 2]];
    }
    boxes_[*at].push_back(std::move(box));
  }

  // Returns the index of the image with that name, nullopt if there is none. A
  // name without an image is reported once.
  std::optional<size_t> index_of(const std::string& name,
                                 const std::string& where,
                                 const ImageNames& names, NamedImages& known,
                                 DataReport& report) {
    const auto [at, is_new_name] = known.by_name.try_emplace(name);
    if (!is_new_name) return at->second;
    std::string why;
    const std::optional<std::string> image = names.find(name, why);
    if (!image) {
      report.add(
          {DataFaultKind::kUnknownImage, where, why, "its boxes dropped"});
      return std::nullopt;
    }
    const auto [index, is_new] = known.by_path.emplace(*image, images_.size());
    if (is_new) {
      images_.push_back(*image);
      boxes_.emplace_back();
    }
    at->second = index->second;
    return at->second;
  }

  std::array<size_t, kColumns.size()> columns_{};
  std::array<size_t, 2> stated_{};  // columns of width and height
  char separator_ = ',';
  bool are_fractions_ = false;
  std::vector<std::vector<CsvBox>> boxes_;  // each image's boxes
};

}  // namespace

std::unique_ptr<LabelReader> open_csv_labels(const fs::path& file,
                                             const fs::path& images,
                                             const ClassRules& classes,
                                             DataReport& report) {
  const fs::path table = fs::absolute(file).lexically_normal();
  const NamesInFolders names(table,
                             images.empty() ? images : fs::absolute(images));
  return std::make_unique<CsvLabels>(table, names, classes, report);
}

std::unique_ptr<LabelReader> open_csv_labels_of(
    const fs::path& file, const std::vector<std::string>& images,
    const ClassRules& classes, DataReport& report) {
  try {
    return std::make_unique<CsvLabels>(file, NamesOfImages(images), classes,
                                       report);
  } catch (const Error& error) {
    report.add({DataFaultKind::kUnreadableLabels, file.string() + ":1:1",
                error.text(), "table not read"});
    return nullptr;
  }
}

}  // namespace headroom::labels
