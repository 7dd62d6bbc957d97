#include "worker/detect/detection_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <opencv2/imgproc.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "worker/chart/chart_text.h"
#include "worker/chart/palette.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/codecs/reduced_picture.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/tiles/tile_cutter.h"
#include "worker/detect/image_sources.h"

namespace headroom::detect {
namespace {

// COCO's classes, and the numbers between 1 and 90 that are not used.
constexpr std::array<std::string_view, 80> kCocoNames = {
    "person",        "bicycle",      "car",
    "motorcycle",    "airplane",     "bus",
    "train",         "truck",        "boat",
    "traffic light", "fire hydrant", "stop sign",
    "parking meter", "bench",        "bird",
    "cat",           "dog",          "horse",
    "sheep",         "cow",          "elephant",
    "bear",          "zebra",        "giraffe",
    "backpack",      "umbrella",     "handbag",
    "tie",           "suitcase",     "frisbee",
    "skis",          "snowboard",    "sports ball",
    "kite",          "baseball bat", "baseball glove",
    "skateboard",    "surfboard",    "tennis racket",
    "bottle",        "wine glass",   "cup",
    "fork",          "knife",        "spoon",
    "bowl",          "banana",       "apple",
    "sandwich",      "orange",       "broccoli",
    "carrot",        "hot dog",      "pizza",
    "donut",         "cake",         "chair",
    "couch",         "potted plant", "bed",
    "dining table",  "toilet",       "tv",
    "laptop",        "mouse",        "remote",
    "keyboard",      "cell phone",   "microwave",
    "oven",          "toaster",      "sink",
    "refrigerator",  "book",         "clock",
    "vase",          "scissors",     "teddy bear",
    "hair drier",    "toothbrush"};
constexpr std::array<int64_t, 10> kCocoUnused = {12, 26, 29, 30, 45,
                                                 66, 68, 69, 71, 83};

std::string score_of(const metrics::Detection& detection) {
  return " " + fixed_text(detection.confidence, 2);
}

// Draws a label above the box, or inside it if there is no room above, and
// never beyond the picture's right edge.
void draw_label(cv::Mat& pixels, const std::string& name,
                const std::string& score, cv::Point corner,
                const cv::Scalar& colour, int line_width, double scale) {
  const int stroke = std::max(1, line_width - 1);
  int baseline = 0;
  const int score_width =
      chart::text_size(score, scale, &baseline, stroke).width;
  const std::string text =
      chart::shortened_to(name, pixels.cols - 1 - score_width, scale, stroke) +
      score;
  const cv::Size size = chart::text_size(text, scale, &baseline, stroke);
  corner.x = std::max(0, std::min(corner.x, pixels.cols - 1 - size.width));
  const int height = size.height + baseline + 2;
  const int top = corner.y >= height ? corner.y - height : corner.y;
  cv::rectangle(pixels, {corner.x, top}, {corner.x + size.width, top + height},
                colour, cv::FILLED, cv::LINE_AA);
  chart::draw_text(pixels, text, {corner.x, top + size.height + 1}, scale,
                   chart::ink_on(colour), stroke);
}

// The size of text. If the line width is given, or the picture is larger than
// 640 pixels, the size follows the line width. On smaller pictures lines cannot
// become thinner, so the size follows the picture; otherwise text would hide
// the objects. Letters below a scale of 0.35 cannot be read.
double text_scale(const cv::Mat& pixels, const AnnotateOptions& options,
                  int line_width) {
  const double beside_lines = line_width / 3.0;
  const double mean_side = (pixels.rows + pixels.cols) / 2.0;
  if (options.line_width > 0 || mean_side > 640) return beside_lines;
  return std::min(beside_lines, std::max(0.35, mean_side / 960));
}

}  // namespace

void annotate(cv::Mat& pixels,
              const std::vector<metrics::Detection>& detections,
              const std::vector<std::string>& class_names,
              const AnnotateOptions& options) {
  const int width =
      options.line_width > 0
          ? options.line_width
          : std::max(2, static_cast<int>(std::lround(
                            (pixels.rows + pixels.cols) / 2.0 * 0.003)));
  const double scale = text_scale(pixels, options, width);
  // The box with the highest confidence is drawn last, on top.
  for (auto one = detections.rbegin(); one != detections.rend(); ++one) {
    const cv::Scalar colour =
        chart::chart_colour(static_cast<size_t>(one->class_index) + 1);
    const auto at = [](float x, float y) {
      return cv::Point(static_cast<int>(x), static_cast<int>(y));
    };
    const cv::Point corner = at(one->box.x1, one->box.y1);
    cv::rectangle(pixels, corner, at(one->box.x2, one->box.y2), colour, width,
                  cv::LINE_AA);
    if (options.labels) {
      draw_label(pixels, class_names.at(static_cast<size_t>(one->class_index)),
                 options.confidences ? score_of(*one) : "", corner, colour,
                 width, scale);
    }
  }
}

namespace {

// A field of a CSV line by RFC 4180: in quotes if it contains a comma or quote.
// Control characters are removed: they could command a terminal.
std::string csv_field(const std::string& name) {
  constexpr size_t kLongest = 8192;
  const std::string text = short_line(name, kLongest);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

nlohmann::json image_id_of(const std::filesystem::path& image,
                           const CocoIds& ids, std::set<std::string>& taken) {
  const auto known = ids.images.find(image.string());
  const std::string stem = labels::with_suffix(image.filename().native(), "");
  const auto number = known == ids.images.end() ? parse_whole(stem)
                                                : std::optional(known->second);
  nlohmann::json id = number ? nlohmann::json(*number) : nlohmann::json(stem);
  const auto is_taken = [&] {
    return !taken
                .insert(id.dump(-1, ' ', false,
                                nlohmann::json::error_handler_t::replace))
                .second;
  };
  for (int next = 2; is_taken(); ++next) id = cat(stem, "_", next);
  return id;
}

namespace fs = std::filesystem;

constexpr int kQuality = 95;
constexpr const char* kCsv = "predictions.csv";
constexpr const char* kJson = "predictions.json";
constexpr int kLongestJpegSide = 65500;  // libjpeg's limit

// Makes a class name usable as one component of a path.
std::string folder_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return c == '/' || c == '\\' || c < ' '; }, '_');
  return name.empty() || name == "." || name == ".." ? "_" : name;
}

cv::Rect pixels_of(const metrics::Corners& box, cv::Size picture) {
  const cv::Rect whole({0, 0}, picture);
  const cv::Point first(static_cast<int>(std::floor(box.x1)),
                        static_cast<int>(std::floor(box.y1)));
  const cv::Point last(static_cast<int>(std::ceil(box.x2)),
                       static_cast<int>(std::ceil(box.y2)));
  return cv::Rect(first, last) & whole;
}

cv::Size size_of(const ImageDetections& found) {
  return {static_cast<int>(found.width), static_cast<int>(found.height)};
}

void check_size(const ImageDetections& found,
                const codecs::ImageLimits& limits) {
  const codecs::StreamedImage now =
      codecs::inspect_streamed(found.image, limits);
  if (now.size.height == found.height && now.size.width == found.width) return;
  refuse_changed(found.image, now.ok() ? tiles::kOtherSize : now.reason);
}

// The boxes scaled to a picture of that size.
std::vector<metrics::Detection> reduced_boxes(const ImageDetections& found,
                                              cv::Size size) {
  const float x =
      static_cast<float>(size.width) / static_cast<float>(found.width);
  const float y =
      static_cast<float>(size.height) / static_cast<float>(found.height);
  std::vector<metrics::Detection> boxes = found.detections;
  for (metrics::Detection& one : boxes) {
    const metrics::Corners& box = one.box;
    one.box = {box.x1 * x, box.y1 * y, box.x2 * x, box.y2 * y};
  }
  return boxes;
}

[[noreturn]] void refuse_to_make(const fs::path& folder,
                                 const std::error_code& why) {
  throw Error(
      "detect", folder.string() + " cannot be made (" + why.message() + ")",
      "choose another place: --project DIR", exit_of_unmade_folder(why));
}

}  // namespace

std::string yolo_text(const ImageDetections& found, bool with_confidence) {
  std::string text;
  const auto width = static_cast<double>(found.width);
  const auto height = static_cast<double>(found.height);
  for (const metrics::Detection& d : found.detections) {
    text += std::to_string(d.class_index);
    for (const double value :
         {(d.box.x1 + d.box.x2) / 2 / width, (d.box.y1 + d.box.y2) / 2 / height,
          (d.box.x2 - d.box.x1) / width, (d.box.y2 - d.box.y1) / height}) {
      text += " " + fixed_text(value, 6);
    }
    if (with_confidence) text += " " + fixed_text(d.confidence, 6);
    text += "\n";
  }
  return text;
}

std::string csv_header() { return "image,class,name,confidence,x1,y1,x2,y2\n"; }

std::string csv_lines(const ImageDetections& found,
                      const std::vector<std::string>& class_names) {
  std::string text;
  for (const metrics::Detection& d : found.detections) {
    text += cat(csv_field(found.image.string()), ",", d.class_index, ",",
                csv_field(class_names.at(static_cast<size_t>(d.class_index))),
                ",", fixed_text(d.confidence, 5));
    for (const float value : {d.box.x1, d.box.y1, d.box.x2, d.box.y2}) {
      text += "," + fixed_text(value, 2);
    }
    text += "\n";
  }
  return text;
}

std::vector<int64_t> usual_categories(
    const std::vector<std::string>& class_names) {
  const bool is_coco = std::ranges::equal(class_names, kCocoNames);
  std::vector<int64_t> ids;
  for (int64_t id = is_coco ? 1 : 0; ids.size() < class_names.size(); ++id) {
    if (!is_coco || !std::ranges::count(kCocoUnused, id)) ids.push_back(id);
  }
  return ids;
}

std::string coco_records(const ImageDetections& found, const CocoIds& ids,
                         std::set<std::string>& taken) {
  const auto rounded = [](float value) {
    return static_cast<double>(static_cast<int64_t>(value * 1000 + 0.5F)) /
           1000;
  };
  const nlohmann::json id = image_id_of(found.image, ids, taken);
  std::string text;
  for (const metrics::Detection& d : found.detections) {
    const nlohmann::ordered_json record = {
        {"image_id", id},
        {"category_id", ids.categories.at(static_cast<size_t>(d.class_index))},
        {"bbox",
         {rounded(d.box.x1), rounded(d.box.y1), rounded(d.box.x2 - d.box.x1),
          rounded(d.box.y2 - d.box.y1)}},
        {"score", d.confidence}};
    text +=
        (text.empty() ? "\n" : ",\n") +
        record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return text;
}

std::string counts_text(const ImageDetections& found,
                        const std::vector<std::string>& class_names) {
  std::map<int32_t, int64_t> counts;
  for (const metrics::Detection& d : found.detections) ++counts[d.class_index];
  if (counts.empty()) return "nothing";
  return joined(counts, ", ", [&](const auto& entry) {
    const auto& [index, count] = entry;
    return cat(count, " ", class_names.at(static_cast<size_t>(index)));
  });
}

namespace {

FolderOptions with_categories(FolderOptions options,
                              const std::vector<std::string>& class_names) {
  std::vector<int64_t>& categories = options.coco_ids.categories;
  if (categories.empty()) categories = usual_categories(class_names);
  return options;
}

}  // namespace

DetectionFolder::DetectionFolder(fs::path folder,
                                 std::vector<std::string> class_names,
                                 FolderOptions options)
    : folder_(std::move(folder)),
      class_names_(std::move(class_names)),
      options_(with_categories(std::move(options), class_names_)) {}

std::string DetectionFolder::name_of(const fs::path& image) {
  const std::string stem = labels::with_suffix(image.filename().native(), "");
  std::string name = stem;
  while (!names_.emplace(name, 1).second) {
    name = cat(stem, "_", ++names_[stem]);
  }
  return name;
}

// Whether an image already has a name like NAME_12, which a picture of the
// video NAME would get, too.
bool DetectionFolder::is_taken_by_a_picture(const std::string& name) const {
  const std::string begin = name + "_";
  for (auto taken = names_.lower_bound(begin);
       taken != names_.end() && taken->first.starts_with(begin); ++taken) {
    const std::string rest = taken->first.substr(begin.size());
    if (!rest.empty() &&
        rest.find_first_not_of("0123456789") == std::string::npos) {
      return true;
    }
  }
  return false;
}

namespace {

fs::path picture_path(const fs::path& video, const std::string& name,
                      int64_t number) {
  return video.parent_path() / (cat(name, "_", number));
}

}  // namespace

std::string DetectionFolder::begin_video(const fs::path& video) {
  std::string name = name_of(video);
  while (is_taken_by_a_picture(name)) name = name_of(name + "_video");
  return name;
}

fs::path DetectionFolder::place_of(const fs::path& file) {
  if (path_.empty()) make_folder();
  const fs::path path = path_ / file;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) refuse_to_make(path.parent_path(), error);
  return path;
}

void DetectionFolder::write(const fs::path& place, const std::string& bytes) {
  write_whole_file(place_of(place), bytes);
}

void DetectionFolder::append(std::unique_ptr<AtomicFile>& file,
                             const char* name, const std::string& text) {
  if (!file) file = std::make_unique<AtomicFile>(place_of(name));
  file->write(text.data(), text.size());
}

void DetectionFolder::make_folder() {
  try {
    if (options_.may_exist) fs::create_directories(folder_);
    path_ = options_.may_exist ? folder_ : make_free_folder(folder_);
  } catch (const fs::filesystem_error& error) {
    refuse_to_make(folder_, error.code());
  }
}

void DetectionFolder::write_picture(const fs::path& stem,
                                    const cv::Mat& pixels) {
  const bool fits = std::max(pixels.rows, pixels.cols) <= kLongestJpegSide;
  write(stem.string() + (fits ? ".jpg" : ".png"),
        fits ? codecs::encode_jpeg(pixels, kQuality)
             : codecs::encode_png_bytes(pixels));
}

void DetectionFolder::write_crop(const ImageDetections& found, size_t number,
                                 const std::string& name,
                                 const cv::Mat& pixels) {
  const auto index = static_cast<size_t>(found.detections[number].class_index);
  write_picture(fs::path("crops") / folder_name(class_names_.at(index)) /
                    (cat(name, "_", number + 1)),
                pixels);
}

void DetectionFolder::write_crops(const ImageDetections& found,
                                  const cv::Mat& pixels,
                                  const std::string& name) {
  for (size_t i = 0; i < found.detections.size(); ++i) {
    const cv::Rect place = pixels_of(found.detections[i].box, pixels.size());
    if (place.empty()) continue;
    write_crop(found, i, name, pixels(place).clone());
  }
}

bool DetectionFolder::cut_crops(const ImageDetections& found,
                                const std::string& name,
                                const codecs::ImageLimits& limits,
                                const GoOn& go_on) {
  struct Ended {};
  std::vector<tiles::TileRect> places;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < found.detections.size(); ++i) {
    const cv::Rect place = pixels_of(found.detections[i].box, size_of(found));
    if (place.empty()) continue;
    places.push_back({place.y, place.x, place.height, place.width});
    numbers.push_back(i);
  }
  const auto all = static_cast<int64_t>(places.size());
  if (all == 0) return true;
  int64_t done = 0;
  try {
    const std::string reason = tiles::cut_tiles(
        found.image, places, limits, [&](size_t index, const cv::Mat& pixels) {
          write_crop(found, numbers[index], name,
                     codecs::shown_colours(pixels).clone());
          if (++done == all || !go_on({"cropped", done, all, "crop"})) {
            throw Ended();
          }
        });
    refuse_changed(found.image, reason);
  } catch (const Ended&) {
    return done == all;
  }
}

void DetectionFolder::add_text(const ImageDetections& found,
                               const std::string& name) {
  if (!options_.text) return;
  const fs::path place = fs::path("labels") / (name + ".txt");
  if (!found.detections.empty()) {
    write(place, yolo_text(found, options_.confidences_in_text));
  } else if (options_.may_exist) {
    std::error_code ignored;  // remove an earlier run's file
    fs::remove(folder_ / place, ignored);
  }
}

void DetectionFolder::add_found(const ImageDetections& found,
                                const cv::Mat& pixels,
                                const std::string& name) {
  if (options_.crops) write_crops(found, pixels, name);
  add_text(found, name);
  add_to_tables(found);
}

void DetectionFolder::add_to_tables(const ImageDetections& found) {
  if (options_.csv) {
    append(csv_, kCsv,
           (csv_ ? "" : csv_header()) + csv_lines(found, class_names_));
  }
  if (options_.json) {
    const std::string records =
        coco_records(found, options_.coco_ids, image_ids_);
    const bool follows = json_has_records_ && !records.empty();
    append(json_, kJson,
           (json_ ? "" : "[") + std::string(follows ? "," : "") + records);
    json_has_records_ = json_has_records_ || !records.empty();
  }
}

void DetectionFolder::add(const ImageDetections& found, cv::Mat& pixels) {
  const std::string name = name_of(found.image);
  add_found(found, pixels, name);
  if (!options_.pictures) return;
  annotate(pixels, found.detections, class_names_, options_.annotate);
  write_picture(name, pixels);
}

bool DetectionFolder::add_large(const ImageDetections& found,
                                const codecs::ImageLimits& limits,
                                const GoOn& go_on) {
  constexpr int64_t kLongest = 4096;
  const std::string name = name_of(found.image);
  if (options_.pictures || options_.crops) check_size(found, limits);
  if (options_.pictures) {
    codecs::ReducedPicture small = codecs::reduced_picture(
        found.image, limits, kLongest, [&](int64_t done, int64_t of) {
          return go_on({"drawn", done, of, "line"});
        });
    if (!small.reason.empty()) refuse_changed(found.image, small.reason);
    if (small.pixels.empty()) return false;
    // In a large image objects are small: names would cover them.
    AnnotateOptions plain = options_.annotate;
    plain.labels = false;
    if (plain.line_width == 0) plain.line_width = 2;
    annotate(small.pixels, reduced_boxes(found, small.pixels.size()),
             class_names_, plain);
    write_picture(name, small.pixels);
  }
  if (options_.crops && !cut_crops(found, name, limits, go_on)) return false;
  add_text(found, name);
  add_to_tables(found);
  return true;
}

void DetectionFolder::add_known(const ImageDetections& found) {
  name_of(found.image);
  add_to_tables(found);
}

void DetectionFolder::add_known_picture(const std::string& name, int64_t number,
                                        ImageDetections found) {
  found.image = picture_path(found.image, name, number);
  add_to_tables(found);
}

void DetectionFolder::add_picture(const std::string& name, int64_t number,
                                  ImageDetections found, cv::Mat& pixels) {
  found.image = picture_path(found.image, name, number);
  const std::string picture = found.image.filename().string();
  add_found(found, pixels, picture);
  if (!options_.pictures) return;
  annotate(pixels, found.detections, class_names_, options_.annotate);
}

void DetectionFolder::finish() {
  if (options_.csv) append(csv_, kCsv, csv_ ? "" : csv_header());
  if (options_.json) append(json_, kJson, json_ ? "\n]\n" : "[\n]\n");
  if (csv_) csv_->commit();
  if (json_) json_->commit();
}

void DetectionFolder::leave_if_empty() {
  std::error_code ignored;
  if (!path_.empty() && fs::is_empty(path_, ignored) &&
      fs::remove(path_, ignored)) {
    path_.clear();
  }
}

}  // namespace headroom::detect
