#include "worker/data/labels/known_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "configs/yaml/line_reader.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "worker/data/labels/box_rules.h"

namespace headroom::labels {
namespace {

// A format that the beginning of a file shows: it contains all of `marks`.
struct DocumentFormat {
  std::array<std::string_view, 3> marks;
  KnownFormat format;
};

constexpr DocumentFormat kDocuments[] = {
    {{"\"shape_attributes\"", "\"regions\"", ""},
     {"VIA", "in VIA, choose Annotation > Export Annotations (COCO format)"}},
    {{"\"shapes\"", "\"points\"", "\"label\""},
     {"LabelMe",
      "convert it with `pip install labelme2yolo; labelme2yolo --json_dir "
      "DIR`"}},
    {{"\"coordinates\"", "\"annotations\"", "\"image"},
     {"CreateML", "export the data set again as YOLO or COCO"}},
    {{"\"original_width\"", "\"result\"", ""},
     {"Label Studio", "in Label Studio, choose Export > YOLO or COCO"}},
    {{"\"items\"", "\"categories\"", "\"annotations\""},
     {"Datumaro",
      "convert it with `datum convert -if datumaro -i DIR -f coco -o OUT`"}},
    {{"\"classTitle\"", "\"objects\"", ""},
     {"Supervisely",
      "in Supervisely, run the app `Export to YOLOv5` or `Export to COCO`"}},
    {{"\"box2d\"", "\"category\"", ""},
     {"BDD100K", "convert it with bdd100k's `bdd100k.label.to_coco`"}},
    {{"<annotations", "<image ", ""},
     {"CVAT for images", "in CVAT, export as YOLO 1.1 or COCO 1.0"}},
    {{"<annotations", "<track ", ""},
     {"CVAT for video", "in CVAT, export as YOLO 1.1 or COCO 1.0"}},
    {{"ImageID", "LabelName", "XMin"},
     {"Open Images",
      "convert it with `datum convert -if open_images -i DIR -f coco -o OUT`"}},
};

constexpr KnownFormat kDarknet = {
    "darknet (obj.data)",
    "write a data.yaml: train: train.txt, val: valid.txt, names: the lines of "
    "obj.names as a list"};
constexpr KnownFormat kKeras = {
    "a list of keras-yolo3 (image x1,y1,x2,y2,class ..)",
    "write its boxes as a .csv with the columns filename,class,xmin,ymin,xmax,"
    "ymax and name that file"};

struct RowFormat {
  RowForm::Shape shape;
  std::string_view text;
  std::string_view refusal;
};

// One entry for each RowForm::Shape, in the same order.
constexpr RowFormat kRowFormats[] = {
    {RowForm::Shape::kYolo, "", ""},
    {RowForm::Shape::kKeypoints,
     "a class, a box and keypoints; the keypoints are not used", ""},
    {RowForm::Shape::kCorners,
     "`class x1 y1 x2 y2`: corners, not centres, for as centres many would "
     "stick out of their images",
     ""},
    {RowForm::Shape::kTopLeft,
     "`class x y w h` with top-left corners, not centres, for as centres many "
     "would stick out of their images",
     ""},
    {RowForm::Shape::kClassLast, "`x y w h class`: the class stands last",
     "put it first in every row, as `awk '{print $5, $1, $2, $3, $4}'` does"},
    {RowForm::Shape::kPercent,
     "`class x y w h` in percent: no number is above 100, and the images are "
     "larger",
     "divide x, y, w and h by 100: they are read as fractions of the image"},
    {RowForm::Shape::kNamed, "names of classes instead of numbers", ""},
    {RowForm::Shape::kOidv4, "OIDv4's `name x1 y1 x2 y2` in pixels", ""},
    {RowForm::Shape::kKitti, "KITTI's", ""},
    {RowForm::Shape::kDota, "DOTA's `x1 y1 .. x4 y4 name difficult` in pixels",
     ""},
    {RowForm::Shape::kMot, "MOT's `frame,id,x,y,w,h,..` of a video",
     "convert it with `datum convert -if mot_seq -i DIR -f coco -o OUT`, or "
     "import it into CVAT and export COCO 1.0"},
    {RowForm::Shape::kVisDrone,
     "VisDrone's `x,y,w,h,score,class,truncation,occlusion` in pixels",
     "convert it with `datum convert -if vis_drone -i DIR -f coco -o OUT`"}};

const RowFormat& format_of(RowForm::Shape shape) {
  return kRowFormats[static_cast<size_t>(shape)];
}

bool is_number(std::string_view word) { return parse_number(word).has_value(); }

// A row's words. `first_numbers` numbers are before the first word that is not
// a number; `numbers` are the numbers after the last such word.
struct Row {
  std::vector<std::string_view> words;
  size_t first_numbers = 0;
  std::vector<double> numbers;
};

Row split_row(std::string_view text) {
  Row row;
  row.words = words_of(text);
  const auto is_word = [](std::string_view word) { return !is_number(word); };
  row.first_numbers = static_cast<size_t>(
      std::ranges::find_if(row.words, is_word) - row.words.begin());
  size_t first = row.words.size();
  while (first > 0 && is_number(row.words[first - 1])) --first;
  for (size_t i = first; i < row.words.size(); ++i) {
    row.numbers.push_back(*parse_number(row.words[i]));
  }
  return row;
}

bool has_pixels(std::span<const double> values) {
  return std::ranges::any_of(values,
                             [](double v) { return v > kMostFraction; });
}

// Whether the values after class and box are the points of a pose: the points
// lie in the box, or every third value is a visibility.
bool is_pose(const std::vector<double>& row) {
  constexpr size_t kBox = 5;
  const double cx = row[1], cy = row[2], w = row[3], h = row[4];
  if (w <= 0 || h <= 0 || cx - w / 2 < -1e-3 || cx + w / 2 > 1 + 1e-3 ||
      cy - h / 2 < -1e-3 || cy + h / 2 > 1 + 1e-3) {
    return false;
  }
  const size_t rest = row.size() - kBox;
  bool has_visibility = rest % 3 == 0;
  for (size_t i = kBox + 2; i < row.size() && has_visibility; i += 3) {
    has_visibility = row[i] == 0 || row[i] == 1 || row[i] == 2;
  }
  if (has_visibility) return true;
  if (rest % 2 != 0) return false;
  constexpr double kSlack = 0.55;  // a fraction of the box's size
  for (size_t i = kBox; i + 1 < row.size(); i += 2) {
    if (row[i] == 0 && row[i + 1] == 0) continue;
    if (std::abs(row[i] - cx) > kSlack * w) return false;
    if (std::abs(row[i + 1] - cy) > kSlack * h) return false;
  }
  return true;
}

bool sticks_out(const std::vector<double>& row) {
  constexpr double kSlack = 1e-3;
  return row[1] - row[3] / 2 < -kSlack || row[1] + row[3] / 2 > 1 + kSlack ||
         row[2] - row[4] / 2 < -kSlack || row[2] + row[4] / 2 > 1 + kSlack;
}

bool can_be_corners(const std::vector<double>& row) {
  return row[1] >= 0 && row[2] >= 0 && row[1] < row[3] && row[2] < row[4] &&
         row[3] <= 1 && row[4] <= 1;
}

bool can_be_top_left(const std::vector<double>& row) {
  constexpr double kSlack = 1e-3;
  return row[1] >= 0 && row[2] >= 0 && row[1] + row[3] <= 1 + kSlack &&
         row[2] + row[4] <= 1 + kSlack;
}

// Counts how many rows of a sample may be boxes, corners and so on.
class RowCounts {
 public:
  void add(std::string_view line, const RowForm& separators) {
    ++rows_;
    const std::string text = separators.plain_row(line);
    const Row row = split_row(text);
    const size_t count = row.numbers.size();
    if (count == row.words.size()) return add_numbers(row.numbers, separators);
    const size_t name_words = row.words.size() - count;
    if (row.first_numbers == 8 && count <= 1) {
      ++dota_;
    } else if (row.first_numbers == 0 && (count == 14 || count == 15) &&
               name_words == 1) {
      ++kitti_;
    } else if (row.first_numbers == 0 && count == 4) {
      ++(has_pixels(row.numbers) ? oidv4_ : named_);
    } else if (row.first_numbers == 4 && count == 0) {
      ++class_last_;
    }
  }

  // Whether every row can be a box, fewer than half of the rows can be corners,
  // and few boxes stick out of their images.
  bool are_plain() const {
    return boxes_ == rows_ && corners_ * 2 < rows_ &&
           !many_stick_out(stick_out_, boxes_);
  }

  int64_t boxes() const { return boxes_; }
  int64_t stick_out() const { return stick_out_; }

  RowForm::Shape shape() const {
    using Shape = RowForm::Shape;
    if (rows_ == 0) return Shape::kYolo;
    for (const auto& [count, shape] :
         {std::pair(mot_, Shape::kMot), std::pair(vis_drone_, Shape::kVisDrone),
          std::pair(dota_, Shape::kDota), std::pair(kitti_, Shape::kKitti),
          std::pair(oidv4_, Shape::kOidv4), std::pair(named_, Shape::kNamed),
          std::pair(class_last_, Shape::kClassLast)}) {
      if (is_most(count, rows_)) return shape;
    }
    const bool has_poses = long_ > 0 && long_ * 2 >= rows_ &&
                           is_most(poses_, long_) && has_one_length_;
    if (has_poses) return Shape::kKeypoints;
    if (rows_ >= kLeastBoxes && is_most(percents_, rows_) &&
        percents_ == pixels_) {
      return Shape::kPercent;
    }
    if (!is_most(boxes_, rows_)) return Shape::kYolo;
    if (mean_something_else(boxes_, corners_, stick_out_)) {
      return Shape::kCorners;
    }
    return mean_something_else(boxes_, top_left_, stick_out_) ? Shape::kTopLeft
                                                              : Shape::kYolo;
  }

 private:
  void add_numbers(const std::vector<double>& row, const RowForm& separators) {
    constexpr size_t kBox = 5;
    if (separators.has_commas && row.size() == 8 && has_pixels(row)) {
      ++vis_drone_;
    } else if (separators.has_commas && row.size() >= 9 && row.size() <= 10 &&
               has_pixels(std::span(row).subspan(2, 4))) {
      ++mot_;
    } else if (row.size() == kBox && row[0] >= 0 && !is_class(row[0]) &&
               is_class(row[4])) {
      ++class_last_;
    } else if (row.size() == kBox || row.size() == kBox + 1) {
      const auto box = std::span(row).subspan(1, 4);
      if (has_pixels(box)) {
        ++pixels_;
        percents_ += std::ranges::max(box) <= kMostPercent ? 1 : 0;
        return;
      }
      ++boxes_;
      corners_ += can_be_corners(row) ? 1 : 0;
      top_left_ += can_be_top_left(row) ? 1 : 0;
      stick_out_ += sticks_out(row) ? 1 : 0;
    } else if (row.size() > kBox + 1) {
      has_one_length_ =
          long_ == 0 || (has_one_length_ && row.size() == length_);
      length_ = row.size();
      ++long_;
      poses_ += is_pose(row) ? 1 : 0;
    }
  }

  int64_t rows_ = 0, boxes_ = 0, corners_ = 0, top_left_ = 0, stick_out_ = 0;
  int64_t pixels_ = 0, percents_ = 0, class_last_ = 0;
  int64_t long_ = 0, poses_ = 0;
  int64_t mot_ = 0, vis_drone_ = 0, dota_ = 0, kitti_ = 0, oidv4_ = 0,
          named_ = 0;
  size_t length_ = 0;
  bool has_one_length_ = true;
};

// Calls `take` for the first rows of each text.
template <typename Take>
void each_row(std::span<const std::string> texts, const Take& take) {
  constexpr int kRowsOfFile = 64;
  for (const std::string& text : texts) {
    LineReader lines(text);
    for (int rows = 0; rows < kRowsOfFile && lines.next();) {
      if (is_no_row(lines.line())) continue;
      ++rows;
      take(lines.line());
    }
  }
}

// Whether the row has five or more values if commas are read as in
// `separators`.
bool is_row(std::string_view line, const RowForm& separators) {
  constexpr size_t kLeast = 5;
  const std::string text = separators.plain_row(line);
  const Row row = split_row(text);
  return row.words.size() >= kLeast && row.numbers.size() + 1 >= kLeast;
}

}  // namespace

bool is_no_row(std::string_view line) {
  line = trimmed(line);
  return line.empty() || line.front() == '#' ||
         line.starts_with("imagesource:") || line.starts_with("gsd:");
}

std::vector<std::string_view> words_of(std::string_view row) {
  constexpr std::string_view kBlanks = " \t\r\f\v";
  std::vector<std::string_view> words;
  for (size_t end = 0;;) {
    const size_t begin = row.find_first_not_of(kBlanks, end);
    if (begin == std::string_view::npos) return words;
    end = std::min(row.find_first_of(kBlanks, begin), row.size());
    words.push_back(row.substr(begin, end - begin));
  }
}

std::string RowForm::plain_row(std::string_view row) const {
  std::string plain(row);
  if (has_decimal_commas) std::ranges::replace(plain, ',', '.');
  if (has_commas) std::ranges::replace(plain, ',', ' ');
  if (has_commas || has_decimal_commas) std::ranges::replace(plain, ';', ' ');
  return plain;
}

std::string RowForm::text() const {
  std::string text(format_of(shape).text);
  const auto add = [&text](std::string_view more) {
    if (!text.empty()) text += ", with ";
    text += more;
  };
  if (has_decimal_commas) add("a decimal comma in their numbers");
  if (has_commas && refusal().empty())
    add("commas or semicolons between their values");
  return text;
}

std::string_view RowForm::refusal() const { return format_of(shape).refusal; }

RowForm row_form(std::span<const std::string> texts, bool has_keypoints) {
  int64_t rows = 0, with_commas = 0, with_decimal_commas = 0;
  const RowForm commas = {.has_commas = true};
  const RowForm decimal_commas = {.has_decimal_commas = true};
  each_row(texts, [&](std::string_view line) {
    ++rows;
    if (line.find_first_of(",;") == std::string_view::npos) return;
    if (line.find(',') != std::string_view::npos &&
        is_row(line, decimal_commas)) {
      ++with_decimal_commas;
    } else if (is_row(line, commas)) {
      ++with_commas;
    }
  });
  RowForm form;
  form.has_decimal_commas = rows > 0 && is_most(with_decimal_commas, rows);
  form.has_commas = rows > 0 && is_most(with_commas, rows);
  RowCounts counts;
  each_row(texts, [&](std::string_view line) { counts.add(line, form); });
  form.shape = has_keypoints ? RowForm::Shape::kKeypoints : counts.shape();
  if (form.shape == RowForm::Shape::kCorners ||
      form.shape == RowForm::Shape::kTopLeft) {
    form.boxes = counts.boxes();
    form.stick_out = counts.stick_out();
  }
  return form;
}

bool are_plain_rows(std::span<const std::string> texts) {
  RowCounts counts;
  each_row(texts, [&](std::string_view line) { counts.add(line, RowForm()); });
  return counts.are_plain();
}

const KnownFormat* known_format(std::string_view text) {
  text = text.substr(0, kKnownFormatBytes);
  for (const DocumentFormat& document : kDocuments) {
    if (std::ranges::all_of(document.marks, [&](std::string_view mark) {
          return text.find(mark) != std::string_view::npos;
        })) {
      return &document.format;
    }
  }
  bool has_train = false, has_names = false;
  LineReader lines(text);
  for (int i = 0; i < 20 && lines.next(); ++i) {
    const auto words = words_of(lines.line());
    if (words.size() < 2) continue;
    // path x1,y1,x2,y2,class
    if (words[0].find('.') != std::string_view::npos &&
        std::ranges::all_of(std::span(words).subspan(1),
                            [](std::string_view word) {
                              return std::ranges::count(word, ',') == 4 &&
                                     word.find_first_not_of("0123456789.,") ==
                                         std::string_view::npos;
                            })) {
      return &kKeras;
    }
    const bool is_setting = words[1] == "=";
    has_train = has_train || (is_setting && words[0] == "train");
    has_names = has_names || (is_setting && words[0] == "names");
  }
  return has_train && has_names ? &kDarknet : nullptr;
}

namespace {

std::optional<NamedFormat> named(const std::string& file,
                                 std::string_view text) {
  const KnownFormat* const format = known_format(text);
  if (format == nullptr) return std::nullopt;
  return NamedFormat{file + " has the form of " + std::string(format->name),
                     std::string(format->remedy)};
}

}  // namespace

void refuse_known_format(const std::string& file, std::string_view text) {
  const auto format = named(file, text);
  if (!format) return;
  throw Error("data", format->what, format->remedy, ExitCode::kData);
}

std::optional<NamedFormat> named_format(std::span<const std::string> files) {
  for (const std::string& file : files) {
    const RegularFile opened(file, Links::kFollowed);
    if (auto format =
            named(file, opened.read(0, kKnownFormatBytes).value_or(""))) {
      return format;
    }
  }
  return std::nullopt;
}

}  // namespace headroom::labels
