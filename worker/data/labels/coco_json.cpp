#include "worker/data/labels/coco_json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/json_text.h"
#include "worker/data/labels/known_formats.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void refuse(const fs::path& file, const std::string& place,
                         const std::string& what, const std::string& remedy) {
  throw Error("data", file.string() + place + ": " + what, remedy,
              ExitCode::kData);
}

enum class Section { kNone, kImages, kAnnotations, kCategories, kResults };

class Handler {
 public:
  Handler(fs::path file, int64_t& line, bool keep_outlines)
      : file_(std::move(file)), line_(line), keep_outlines_(keep_outlines) {}

  CocoFile result;
  bool has_images = false, has_categories = false, is_list = false;

  bool null() { return in_bbox_ ? number(NAN) : true; }
  bool boolean(bool value) { return number(value ? 1 : 0); }
  bool number_integer(int64_t value) { return whole(value); }
  bool number_unsigned(uint64_t value) {
    return value > INT64_MAX ? number(static_cast<double>(value))
                             : whole(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return number(value); }
  bool binary(Json::binary_t&) { return true; }

  bool string(std::string& value) {
    if (in_bbox_ || in_outline_) {
      return number(parse_number(value).value_or(NAN));
    }
    if (!at_field()) return true;
    if (key_ == "file_name") image_.file_name = std::move(value);
    if (key_ == "name") category_.name = std::move(value);
    if (key_ != "id" && !key_.ends_with("_id")) return true;
    if (const auto id = parse_whole(value)) return whole(*id);
    refuse(file_, cat(":", line_), key_ + " is text that is no whole number",
           "number images, annotations and categories");
  }

  bool start_object(size_t) {
    ++depth_;
    if (section_ != Section::kNone && depth_ == record_depth_) begin_record();
    return true;
  }
  bool end_object() {
    if (section_ != Section::kNone && depth_ == record_depth_) end_record();
    --depth_;
    return true;
  }
  bool key(std::string& value) {
    if (depth_ == 1 || at_field()) key_ = std::move(value);
    return true;
  }
  bool start_array(size_t) {
    ++depth_;
    if (depth_ == 1) {
      is_list = true;
      begin_section(Section::kResults);
    } else if (depth_ == 2 && !is_list) {
      if (key_ == "images") begin_section(Section::kImages);
      if (key_ == "annotations") begin_section(Section::kAnnotations);
      if (key_ == "categories") begin_section(Section::kCategories);
    } else if (depth_ == record_depth_ + 1 && section_ != Section::kNone &&
               in_record_) {
      in_bbox_ = key_ == "bbox";
      in_outline_ = key_ == "segmentation";
    } else if (depth_ == record_depth_ + 2 && in_outline_) {
      annotation_.has_outline = true;
      part_size_ = 0;
      if (keep_outlines_) annotation_.outline.emplace_back();
    }
    return true;
  }
  bool end_array() {
    if (depth_ == record_depth_ + 2 && in_outline_ &&
        (part_size_ < 6 || part_size_ % 2 != 0)) {
      annotation_.has_bad_outline = true;
    }
    if (depth_ == record_depth_ + 1) in_bbox_ = in_outline_ = false;
    if (section_ != Section::kNone && depth_ == record_depth_ - 1) {
      section_ = Section::kNone;
    }
    --depth_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    refuse(file_, cat(":", line_), json_error_text(error),
           "export the file again");
  }

 private:
  bool at_field() const {
    return section_ != Section::kNone && in_record_ && depth_ == record_depth_;
  }

  void begin_section(Section section) {
    section_ = section;
    record_depth_ = depth_ + 1;
    in_record_ = false;
    if (section == Section::kImages) has_images = true;
    if (section == Section::kCategories) has_categories = true;
  }

  void begin_record() {
    in_record_ = true;
    key_.clear();
    has_id_ = has_image_id_ = has_category_id_ = has_score_ = false;
    image_ = {};
    annotation_ = {};
    category_ = {};
    image_.line = annotation_.line = line_;
  }

  bool whole(int64_t value) {
    if (at_field() && key_ == "id") {
      has_id_ = true;
      image_.id = category_.id = value;
      annotation_.id = value;
      return true;
    }
    if (at_field() && key_ == "image_id") {
      has_image_id_ = true;
      annotation_.image_id = value;
      return true;
    }
    if (at_field() && key_ == "category_id") {
      has_category_id_ = true;
      annotation_.category_id = value;
      return true;
    }
    return number(static_cast<double>(value));
  }

  bool number(double value) {
    if (in_bbox_ && depth_ == record_depth_ + 1) {
      if (annotation_.num_bbox < 4) {
        annotation_.bbox[static_cast<size_t>(annotation_.num_bbox)] = value;
      }
      annotation_.num_bbox = std::min(annotation_.num_bbox + 1, 5);
      return true;
    }
    if (in_outline_ && depth_ == record_depth_ + 2) {
      extend_outline_box(value, part_size_ % 2 == 0 ? 0 : 1);
      ++part_size_;
      if (!annotation_.outline.empty()) {
        annotation_.outline.back().push_back(value);
      }
      return true;
    }
    if (!at_field()) return true;
    if (key_ == "area") annotation_.area = value;
    if (key_ == "iscrowd" || key_ == "ignore") {
      annotation_.crowd = annotation_.crowd || value != 0;
    }
    if (key_ == "width") image_.width = pixels(value);
    if (key_ == "height") image_.height = pixels(value);
    if (key_ == "score") {
      has_score_ = true;
      annotation_.score = value;
    }
    if (key_ == "id" || key_ == "image_id" || key_ == "category_id") {
      constexpr double kMostWhole = 9e15;
      if (value == std::floor(value) && std::abs(value) < kMostWhole) {
        return whole(static_cast<int64_t>(value));
      }
      refuse(file_, cat(":", line_), key_ + " is no whole number",
             "number images, annotations and categories");
    }
    return true;
  }

  // `axis` is 0 for x and 1 for y.
  void extend_outline_box(double value, size_t axis) {
    auto& box = annotation_.outline_box;
    if (!std::isfinite(value)) return;
    if (!box) {
      box = {HUGE_VAL, HUGE_VAL, -HUGE_VAL, -HUGE_VAL};
    }
    (*box)[axis] = std::min((*box)[axis], value);
    (*box)[axis + 2] = std::max((*box)[axis + 2], value);
  }

  static int64_t pixels(double value) {
    return value >= 1 && value <= 1e9 ? static_cast<int64_t>(value) : 0;
  }

  void end_record() {
    in_record_ = false;
    switch (section_) {
      case Section::kImages:
        require(has_id_, "an image", "id", image_.line);
        result.images.push_back(std::move(image_));
        break;
      case Section::kCategories:
        require(has_id_, "a category", "id", annotation_.line);
        result.categories.push_back(std::move(category_));
        break;
      case Section::kResults:
        require(has_score_, "a detection", "score", annotation_.line);
        require(annotation_.num_bbox == 4, "a detection", "bbox of 4 numbers",
                annotation_.line);
        [[fallthrough]];
      case Section::kAnnotations:
        require(has_image_id_, "an annotation", "image_id", annotation_.line);
        require(has_category_id_, "an annotation", "category_id",
                annotation_.line);
        result.annotations.push_back(std::move(annotation_));
        break;
      case Section::kNone:
        break;
    }
  }

  void require(bool present, const std::string& what, const std::string& key,
               int64_t line) {
    if (present) return;
    refuse(file_, cat(":", line), what + " has no " + key,
           "export the file again");
  }

  fs::path file_;
  int64_t& line_;
  bool keep_outlines_;
  Section section_ = Section::kNone;
  int64_t depth_ = 0;
  int64_t record_depth_ = -1;
  bool in_record_ = false, in_bbox_ = false, in_outline_ = false;
  int64_t part_size_ = 0;  // number of values in this part of the outline
  bool has_id_ = false, has_image_id_ = false, has_category_id_ = false,
       has_score_ = false;
  std::string key_;
  CocoImage image_;
  CocoAnnotation annotation_;
  CocoCategory category_;
};

// Python writes NaN, Infinity and -Infinity, which are not JSON. Replaces them
// by null, with blanks up to the same length.
void replace_not_finite(std::string& text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  if (text.find("NaN") == std::string::npos &&
      text.find("Infinity") == std::string::npos) {
    return;
  }
  std::string plain;
  plain.reserve(text.size() + 1);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      plain += text[i++];
    } else if (!in_string) {
      const auto* const word =
          std::ranges::find_if(kWords, [&](std::string_view w) {
            return text.compare(i, w.size(), w) == 0;
          });
      if (word != std::end(kWords)) {
        plain += "null";
        i += word->size() - 1;
        continue;
      }
    }
    plain += text[i];
  }
  text = std::move(plain);
}

// Throws for a file of another program, with its name.
void refuse_other_json(const fs::path& file, std::string_view text) {
  const KnownFormat* const format = known_format(text);
  if (format == nullptr) return;
  refuse(
      file, "",
      "it has the form of " + std::string(format->name) + ", not COCO's JSON",
      std::string(format->remedy));
}

Handler parse(const fs::path& file, bool keep_outlines, bool wants_list) {
  std::string text = read_json_text(file, "COCO's JSON");
  replace_not_finite(text);
  int64_t line = 1;
  Handler handler(file, line, keep_outlines);
  try {
    parse_json_events(text, line, handler);
  } catch (const Error&) {
    refuse_other_json(file, text);
    throw;
  }
  const bool is_expected =
      wants_list
          ? handler.is_list
          : !handler.is_list && handler.has_images && handler.has_categories;
  if (!is_expected) refuse_other_json(file, text);
  return handler;
}

}  // namespace

CocoFile read_coco_annotations(const fs::path& file, bool keep_outlines) {
  Handler handler = parse(file, keep_outlines, /*wants_list=*/false);
  if (handler.is_list || !handler.has_images || !handler.has_categories) {
    refuse(file, "",
           handler.is_list ? "a list, not annotations"
                           : "it has no images or no categories",
           "give a file with images, annotations and categories");
  }
  CocoFile result = std::move(handler.result);
  std::sort(result.categories.begin(), result.categories.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 1; i < result.categories.size(); ++i) {
    if (result.categories[i].id != result.categories[i - 1].id) continue;
    refuse(file, "",
           cat("category ", result.categories[i].id, " is there twice"),
           "give every category an id of its own");
  }
  std::map<int64_t, std::string> seen;
  std::erase_if(result.images, [&](const CocoImage& image) {
    const auto [first, is_new] = seen.emplace(image.id, image.file_name);
    if (!is_new && first->second != image.file_name) {
      refuse(file, cat(":", image.line),
             cat("image ", image.id, " is there twice"),
             "give every image an id of its own");
    }
    return !is_new;
  });
  return result;
}

std::vector<CocoAnnotation> read_coco_results(const fs::path& file) {
  Handler handler = parse(file, false, /*wants_list=*/true);
  if (!handler.is_list) {
    refuse(file, "", "no list of detections",
           "give a list of {image_id, category_id, bbox, score}");
  }
  return std::move(handler.result.annotations);
}

}  // namespace headroom::labels
