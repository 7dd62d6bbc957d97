#include "worker/validation/detection_scores.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "worker/data/labels/coco_json.h"
#include "worker/data/labels/geojson.h"
#include "worker/detect/detection_folder.h"

namespace headroom::validation {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, int64_t line,
                         const std::string& what, const std::string& remedy) {
  throw Error("data", cat(file.string(), ":", line, ": ", what), remedy,
              ExitCode::kData);
}

// The index of each image's scene, and the class of each category.
class Places {
 public:
  explicit Places(const labels::CocoFile& truth) {
    for (const labels::CocoImage& image : truth.images)
      images_.emplace(image.id, 0);
    size_t next = 0;
    for (auto& [id, place] : images_) place = next++;  // in the order of ids
    for (const labels::CocoCategory& category : truth.categories) {
      classes_.emplace(category.id, static_cast<int32_t>(classes_.size()));
    }
  }

  size_t image_of(const labels::CocoAnnotation& box,
                  const fs::path& file) const {
    const auto found = images_.find(box.image_id);
    if (found != images_.end()) return found->second;
    refuse(file, box.line,
           cat("image ", box.image_id,
               " is not among the images of the ground truth"),
           "score detections of the same images");
  }
  int32_t class_of(const labels::CocoAnnotation& box,
                   const fs::path& file) const {
    const auto found = classes_.find(box.category_id);
    if (found != classes_.end()) return found->second;
    refuse(file, box.line,
           cat("category ", box.category_id,
               " is not among the categories of the ground truth"),
           "write category ids, not class indices");
  }
  size_t num_images() const { return images_.size(); }

 private:
  std::map<int64_t, size_t> images_;
  std::map<int64_t, int32_t> classes_;
};

metrics::Corners corners_of(double x, double y, double w, double h) {
  return {static_cast<float>(x), static_cast<float>(y),
          static_cast<float>(x + w), static_cast<float>(y + h)};
}

// Computes YOLOv5's average precision. It ignores crowds and areas, which
// YOLO's label files do not have.
metrics::AveragePrecision yolov5_precision(
    const std::vector<metrics::CocoScene>& scenes, size_t num_classes) {
  std::vector<metrics::DetectionRecord> records;
  std::vector<int64_t> labels_per_class(num_classes);
  for (const metrics::CocoScene& scene : scenes) {
    std::vector<metrics::LabelledBox> labels;
    for (const metrics::CocoObject& o : scene.objects) {
      if (o.crowd) continue;
      labels.push_back({corners_of(o.x, o.y, o.w, o.h), o.class_index});
      ++labels_per_class[static_cast<size_t>(o.class_index)];
    }
    std::vector<metrics::Detection> detections;
    for (const metrics::CocoDetection& d : scene.detections) {
      detections.push_back({corners_of(d.x, d.y, d.w, d.h),
                            static_cast<float>(d.score), d.class_index});
    }
    std::stable_sort(
        detections.begin(), detections.end(),
        [](const metrics::Detection& a, const metrics::Detection& b) {
          return a.confidence > b.confidence;
        });
    const auto more = metrics::match_records(detections, labels);
    records.insert(records.end(), more.begin(), more.end());
  }
  return metrics::compute_average_precision(records, labels_per_class);
}

void add_objects(const labels::CocoFile& truth, const fs::path& file,
                 const Places& places, DetectionScores& scores,
                 std::vector<metrics::CocoScene>& scenes) {
  for (const labels::CocoAnnotation& box : truth.annotations) {
    if (box.num_bbox != 4) {
      refuse(file, box.line, "an annotation has no bbox of 4 numbers",
             "write bbox: [x, y, width, height]");
    }
    const auto& [x, y, w, h] = box.bbox;
    scenes[places.image_of(box, file)].objects.push_back(
        {x, y, w, h, box.area.value_or(w * h), places.class_of(box, file),
         box.crowd});
    ++(box.crowd ? scores.crowds : scores.objects);
  }
}

std::string row(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string row(const char* format, ...) {
  std::array<char, 256> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

// pycocotools' lines, word for word, because scripts parse them.
std::string twelve_lines(const metrics::CocoEvaluation& coco) {
  struct Line {
    const char* title;
    const char* iou;
    const char* area;
    int most;
  };
  constexpr const char *kPrecision = "Average Precision", *kAll = "0.50:0.95";
  constexpr const char* kRecall = "Average Recall";
  static constexpr std::array<Line, 12> lines{{
      {kPrecision, kAll, "all", 100},
      {kPrecision, "0.50", "all", 100},
      {kPrecision, "0.75", "all", 100},
      {kPrecision, kAll, "small", 100},
      {kPrecision, kAll, "medium", 100},
      {kPrecision, kAll, "large", 100},
      {kRecall, kAll, "all", 1},
      {kRecall, kAll, "all", 10},
      {kRecall, kAll, "all", 100},
      {kRecall, kAll, "small", 100},
      {kRecall, kAll, "medium", 100},
      {kRecall, kAll, "large", 100},
  }};
  std::string text;
  const auto stats = coco.stats();
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    text += row(" %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.4f\n",
                line.title, i < 6 ? "(AP)" : "(AR)", line.iou, line.area,
                line.most, stats[i]);
  }
  return text;
}

const metrics::ClassPrecision* find_class(const metrics::AveragePrecision& ap,
                                          size_t c) {
  for (const metrics::ClassPrecision& figures : ap.classes) {
    if (figures.class_index == static_cast<int64_t>(c)) return &figures;
  }
  return nullptr;
}

nlohmann::ordered_json figures_json(const metrics::CocoFigures& figures) {
  return {{"objects", figures.objects}, {"AP", figures.ap},
          {"AP50", figures.ap50},       {"AP75", figures.ap75},
          {"AR1", figures.ar1},         {"AR10", figures.ar10},
          {"AR100", figures.ar}};
}

// COCO's ids of the split's images. Empty if the split is not exactly one COCO
// JSON file, because the ids in several files could collide.
detect::CocoIds ids_of(const configs::DataConfig& data, labels::Split split,
                       const std::vector<std::string>& class_names) {
  detect::CocoIds ids;
  const std::vector<fs::path>& sources = labels::split_sources(data, split);
  if (sources.size() != 1 || sources.front().extension() != ".json" ||
      labels::is_geojson(sources.front())) {
    return ids;
  }
  const fs::path file = fs::absolute(sources.front()).lexically_normal();
  const labels::CocoFile truth = labels::read_coco_annotations(file);
  const fs::path& images = labels::split_images(data, split);
  const fs::path folder =
      images.empty() ? file.parent_path() : fs::absolute(images);
  for (const labels::CocoImage& image : truth.images) {
    ids.images.emplace((folder / image.file_name).lexically_normal().string(),
                       image.id);
  }
  std::map<std::string, int64_t> categories;
  int64_t unused = 1;
  for (const labels::CocoCategory& category : truth.categories) {
    categories.emplace(category.name, category.id);
    unused = std::max(unused, category.id + 1);
  }
  for (const std::string& name : class_names) {
    const auto known = categories.find(name);
    ids.categories.push_back(known != categories.end() ? known->second
                                                       : unused++);
  }
  return ids;
}

metrics::CocoScene scene_of(const ImageFindings& image) {
  metrics::CocoScene scene;
  const auto side = [](float begin, float end) {
    return static_cast<double>(end) - static_cast<double>(begin);
  };
  for (const metrics::LabelledBox& label : image.labels) {
    const metrics::Corners& box = label.box;
    const double w = side(box.x1, box.x2), h = side(box.y1, box.y2);
    scene.objects.push_back(
        {box.x1, box.y1, w, h, w * h, label.class_index, false});
  }
  for (const metrics::Detection& one : image.detections) {
    const metrics::Corners& box = one.box;
    scene.detections.push_back({box.x1, box.y1, side(box.x1, box.x2),
                                side(box.y1, box.y2), one.confidence,
                                one.class_index});
  }
  return scene;
}

}  // namespace

DetectionScores score_detections(const fs::path& detections,
                                 const fs::path& ground_truth) {
  const labels::CocoFile truth = labels::read_coco_annotations(ground_truth);
  const Places places(truth);
  DetectionScores scores;
  for (const labels::CocoCategory& category : truth.categories) {
    scores.class_names.push_back(category.name);
  }
  std::vector<metrics::CocoScene> scenes(places.num_images());
  scores.images = static_cast<int64_t>(scenes.size());
  add_objects(truth, ground_truth, places, scores, scenes);
  for (const labels::CocoAnnotation& box :
       labels::read_coco_results(detections)) {
    const auto& [x, y, w, h] = box.bbox;
    scenes[places.image_of(box, detections)].detections.push_back(
        {x, y, w, h, box.score, places.class_of(box, detections)});
    ++scores.detections;
  }
  const auto classes = static_cast<int64_t>(scores.class_names.size());
  scores.yolov5 = yolov5_precision(scenes, scores.class_names.size());
  scores.coco = metrics::evaluate_coco(scenes, classes);
  scores.coco_300 = metrics::evaluate_coco(scenes, classes, 300);
  return scores;
}

std::string scores_text(const DetectionScores& scores) {
  const metrics::AveragePrecision& yolo = scores.yolov5;
  std::string text =
      row("%lld images, %lld objects in %zu of %zu classes, %lld crowds, %lld "
          "detections\n\n",
          static_cast<long long>(scores.images),
          static_cast<long long>(scores.objects), yolo.classes.size(),
          scores.class_names.size(), static_cast<long long>(scores.crowds),
          static_cast<long long>(scores.detections));
  text += row(
      "YOLOv5's definition (linear at 101 recalls; a perfect class has "
      "0.995)\n mAP50 %.4f   mAP50-95 %.4f   P %.4f   R %.4f (at confidence "
      "%.3f)\n\n",
      yolo.map50, yolo.map, yolo.precision, yolo.recall, yolo.confidence);
  text += "COCO's definition (pycocotools; -1: no such object)\n" +
          twelve_lines(scores.coco) + "\n";
  text += row("%-20s %7s | %6s %6s %6s %8s | %6s %6s %6s %6s %6s\n", "Class",
              "objects", "P", "R", "mAP50", "mAP50-95", "AP", "AP50", "APs",
              "APm", "APl");
  for (size_t c = 0; c < scores.class_names.size(); ++c) {
    const metrics::ClassPrecision* one = find_class(yolo, c);
    if (one == nullptr) continue;
    const auto& coco = scores.coco.classes[c];
    std::string name = valid_utf8(scores.class_names[c]);
    while (display_width(name) > 20) {
      while ((name.back() & 0xC0) == 0x80) name.pop_back();
      name.pop_back();
    }
    text += padded(name, 20);
    text +=
        row(" %7lld | %6.3f %6.3f %6.3f %8.3f | %6.3f %6.3f %6.3f %6.3f "
            "%6.3f\n",
            static_cast<long long>(one->labels), one->precision, one->recall,
            one->ap50(), one->mean_ap(), coco[0].ap, coco[0].ap50, coco[1].ap,
            coco[2].ap, coco[3].ap);
  }
  text += row("\n%-20s %7s | %6s %6s %6s %6s\n", "Size (COCO)", "objects", "AP",
              "AP50", "AP75", "AR100");
  for (size_t a = 0; a < metrics::kNumCocoAreas; ++a) {
    const metrics::CocoFigures& figures = scores.coco.by_area[a];
    text +=
        row("%-20s %7lld | %6.3f %6.3f %6.3f %6.3f\n",
            metrics::kCocoAreaNames[a], static_cast<long long>(figures.objects),
            figures.ap, figures.ap50, figures.ap75, figures.ar);
  }
  return text;
}

nlohmann::ordered_json scores_object(const DetectionScores& scores) {
  const metrics::AveragePrecision& yolo = scores.yolov5;
  nlohmann::ordered_json json = {{"images", scores.images},
                                 {"objects", scores.objects},
                                 {"crowds", scores.crowds},
                                 {"detections", scores.detections},
                                 {"yolov5_style",
                                  {{"mAP50", yolo.map50},
                                   {"mAP50_95", yolo.map},
                                   {"precision", yolo.precision},
                                   {"recall", yolo.recall},
                                   {"confidence", yolo.confidence}}},
                                 {"coco_stats_maxdets100", scores.coco.stats()},
                                 {"coco_maxdets300",
                                  {{"AP", scores.coco_300.by_area[0].ap},
                                   {"AP50", scores.coco_300.by_area[0].ap50}}}};
  for (size_t a = 0; a < metrics::kNumCocoAreas; ++a) {
    json["per_size"][metrics::kCocoAreaNames[a]] =
        figures_json(scores.coco.by_area[a]);
  }
  json["per_class"] = nlohmann::ordered_json::array();
  for (size_t c = 0; c < scores.class_names.size(); ++c) {
    const metrics::ClassPrecision* one = find_class(yolo, c);
    if (one == nullptr) continue;
    nlohmann::ordered_json entry = {
        {"name", scores.class_names[c]}, {"objects", one->labels},
        {"precision", one->precision},   {"recall", one->recall},
        {"mAP50", one->ap50()},          {"mAP50_95", one->mean_ap()}};
    for (size_t a = 0; a < metrics::kNumCocoAreas; ++a) {
      entry["coco"][metrics::kCocoAreaNames[a]] =
          figures_json(scores.coco.classes[c][a]);
    }
    json["per_class"].push_back(std::move(entry));
  }
  return json;
}

std::string scores_json(const DetectionScores& scores) {
  return scores_object(scores).dump();
}

void write_found(const configs::RunConfig& config, const fs::path& folder,
                 const labels::Dataset& dataset,
                 const configs::DataConfig& data, labels::Split split,
                 std::vector<ImageFindings> found) {
  if (!config.save_txt && !config.save_json) return;
  detect::FolderOptions options;
  options.pictures = false;
  options.may_exist = true;
  options.text = config.save_txt;
  options.confidences_in_text = config.save_conf;
  options.json = config.save_json;
  if (config.save_json && !config.single_cls) {
    options.coco_ids = ids_of(data, split, dataset.class_names());
  }
  detect::DetectionFolder files(folder, dataset.class_names(),
                                std::move(options));
  std::ranges::sort(found, {}, &ImageFindings::sample);
  cv::Mat no_pixels;
  for (const ImageFindings& image : found) {
    const codecs::ImageSize size = dataset.image_size(image.sample);
    files.add(
        {dataset.path(image.sample), size.height, size.width, image.detections},
        no_pixels);
  }
  files.finish();
}

DetectionScores scores_of(const ValidationResult& result,
                          const std::vector<std::string>& class_names) {
  DetectionScores scores;
  scores.class_names = class_names;
  scores.images = result.images;
  scores.objects = result.labels;
  scores.yolov5 = result.curves;
  std::vector<metrics::CocoScene> scenes;
  for (const ImageFindings& image : result.found) {
    scenes.push_back(scene_of(image));
    scores.detections += static_cast<int64_t>(image.detections.size());
  }
  const auto classes = static_cast<int64_t>(class_names.size());
  scores.coco = metrics::evaluate_coco(scenes, classes);
  scores.coco_300 = metrics::evaluate_coco(scenes, classes, 300);
  return scores;
}

}  // namespace headroom::validation
