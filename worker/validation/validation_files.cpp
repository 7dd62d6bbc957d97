#include "worker/validation/validation_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "worker/data/labels/coco_json.h"
#include "worker/detect/detection_folder.h"

namespace headroom::validation {
namespace {

namespace fs = std::filesystem;

// None where the split is not one COCO JSON: ids of two would meet.
detect::CocoIds ids_of(const configs::DataConfig& data, labels::Split split,
                       const std::vector<std::string>& class_names) {
  detect::CocoIds ids;
  const std::vector<fs::path>& sources = labels::split_sources(data, split);
  if (sources.size() != 1 || sources.front().extension() != ".json") return ids;
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
