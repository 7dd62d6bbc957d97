// One box a line, as the tutorials of TensorFlow's detectors write them:
//
//   filename,width,height,class,xmin,ymin,xmax,ymax
//   a.jpg,640,480,cat,10,20,110,220
//
// Corners are pixels of the upright image; width and height are often stale and
// not read. An image without a line is not part of the data set.

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kColumns{"filename", "class", "xmin",
                                                   "ymin",     "xmax",  "ymax"};

// The fields of a line; one in quotes may hold commas, and quotes twice.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_doubled = is_quoted && line.substr(i).starts_with("\"\"");
    if (is_doubled) {
      fields.back() += line[i++];
    } else if (line[i] == '"') {
      is_quoted = !is_quoted;
    } else if (line[i] == ',' && !is_quoted) {
      fields.emplace_back();
    } else if (line[i] != '\r') {
      fields.back() += line[i];
    }
  }
  return fields;
}

struct CsvBox {
  int64_t line = 0;
  std::string class_name;
  // xmin ymin xmax ymax, as written
  std::array<std::string, 4> corners = {};
};

class CsvLabels : public LabelReader {
 public:
  CsvLabels(fs::path file, const fs::path& images, ClassRules classes,
            DataReport& report)
      : file_(std::move(file)), classes_(std::move(classes)) {
    if (images.empty()) {
      // train of train_labels.csv
      const std::string stem = file_.stem().string();
      folders_ = {file_.parent_path(),
                  file_.parent_path() / stem.substr(0, stem.find("_labels"))};
    } else {
      folders_ = {images};
    }
    std::ifstream stream(file_, std::ios::binary);
    std::string line;
    std::getline(stream, line);
    read_header(line);
    std::map<std::string, size_t> index_of;
    for (int64_t number = 2; std::getline(stream, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      add(fields_of(line), number, index_of, report);
    }
  }

  const std::vector<fs::path>& images() const override { return images_; }
  bool is_in_pixels() const override { return true; }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    ImageLabels result;
    result.file = file_;
    BoxRules rules(result.labels);
    for (const CsvBox& box : boxes_[index]) {
      rules.at(place(box.line));
      std::array<double, 4> corners{};
      bool is_number = true;
      for (size_t i = 0; i < corners.size(); ++i) {
        const auto value = parse_number(box.corners[i]);
        is_number = is_number && value.has_value();
        corners[i] = value.value_or(0);
      }
      if (!is_number) {
        rules.drop(DataFaultKind::kBadLine,
                   "xmin, ymin, xmax and ymax are not four numbers");
        continue;
      }
      const auto class_index =
          classes_.find(box.class_name, box.line, result.labels);
      if (!class_index) continue;
      rules.add_pixels(*class_index,
                       {corners[0], corners[1], corners[2], corners[3]}, size);
    }
    return result;
  }

 private:
  std::string place(int64_t line) const {
    return file_.string() + ":" + std::to_string(line);
  }

  void read_header(std::string_view line) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (line.starts_with(kByteOrderMark)) {
      line.remove_prefix(kByteOrderMark.size());
    }
    const std::vector<std::string> names = fields_of(line);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const auto found = std::ranges::find(names, kColumns[i]);
      if (found == names.end()) {
        const std::string kind = foreign_kind(line);
        throw Error("data",
                    file_.string() + " has no column '" +
                        std::string(kColumns[i]) + "' in its first line" +
                        (kind.empty() ? "" : " (it is " + kind + ")"),
                    "write the names of the columns there: "
                    "filename,width,height,class,xmin,ymin,xmax,ymax",
                    ExitCode::kData);
      }
      columns_[i] = static_cast<size_t>(found - names.begin());
    }
  }

  void add(const std::vector<std::string>& fields, int64_t line,
           std::map<std::string, size_t>& index_of, DataReport& report) {
    if (fields.size() <= std::ranges::max(columns_)) {
      report.add({DataFaultKind::kBadLine, place(line),
                  std::to_string(fields.size()) + " fields", "box dropped"});
      return;
    }
    const std::string& name = fields[columns_[0]];
    if (!stays_in_folder(name)) {
      report.add({DataFaultKind::kUnreadableImage, place(line),
                  "filename '" + name + "' is empty or leads out of its folder",
                  "image and its boxes left out"});
      return;
    }
    const auto [at, is_new] = index_of.emplace(name, images_.size());
    if (is_new) {
      images_.push_back(find_image(name));
      boxes_.emplace_back();
    }
    CsvBox box = {.line = line, .class_name = fields[columns_[1]]};
    for (size_t i = 0; i < box.corners.size(); ++i) {
      box.corners[i] = fields[columns_[i + 2]];
    }
    boxes_[at->second].push_back(std::move(box));
  }

  fs::path find_image(const std::string& name) const {
    std::error_code error;
    const auto found = std::ranges::find_if(folders_, [&](const fs::path& f) {
      return fs::exists(f / name, error);
    });
    const fs::path& folder = found == folders_.end() ? folders_[0] : *found;
    return (folder / name).lexically_normal();
  }

  fs::path file_;
  ClassRules classes_;
  std::vector<fs::path> folders_;  // where names may start
  std::array<size_t, kColumns.size()> columns_{};
  std::vector<fs::path> images_;
  std::vector<std::vector<CsvBox>> boxes_;  // per image
};

}  // namespace

std::unique_ptr<LabelReader> open_csv_labels(const fs::path& file,
                                             const fs::path& images,
                                             const ClassRules& classes,
                                             DataReport& report) {
  return std::make_unique<CsvLabels>(
      fs::absolute(file).lexically_normal(),
      images.empty() ? images : fs::absolute(images), classes, report);
}

}  // namespace headroom::labels
