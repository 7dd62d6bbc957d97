// Reads COCO's annotations. Categories are matched to `names` by name; their
// ids do not matter. Boxes are in pixels of the upright image; the image sizes
// stated in the file are not used. Crowds are regions, not objects, so they are
// not trained on.
//
// If `segmentation` is a list, it becomes the outline of its box.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/coco_json.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

class CocoLabels : public TableLabels {
 public:
  CocoLabels(const fs::path& file, const fs::path& folder, ClassRules classes,
             DataReport& report, bool keep_outlines)
      : TableLabels(file, std::move(classes)) {
    CocoFile content = read_coco_annotations(file_, keep_outlines);
    for (CocoCategory& category : content.categories) {
      category_names_.emplace(category.id, std::move(category.name));
    }
    std::map<int64_t, size_t> index_of;
    for (const CocoImage& image : content.images) {
      if (!check_name("file_name", image.file_name, place(image.line),
                      report)) {
        index_of.emplace(image.id, kLeftOut);
        continue;
      }
      index_of.emplace(image.id, images_.size());
      images_.push_back((folder / image.file_name).lexically_normal().string());
    }
    boxes_.resize(images_.size());
    for (CocoAnnotation& box : content.annotations) {
      const auto image = index_of.find(box.image_id);
      if (image == index_of.end()) {
        report.add({DataFaultKind::kUnknownImage, place(box.line),
                    cat(name_of(box), ": image_id ", box.image_id),
                    "box dropped"});
      } else if (image->second != kLeftOut && !box.crowd) {
        boxes_[image->second].push_back(std::move(box));
      }
    }
  }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    ImageLabels result;
    result.file = file_;
    BoxRules rules(result.labels);
    for (const CocoAnnotation& box : boxes_[index]) {
      rules.at(place(box.line), name_of(box));
      if (box.num_bbox != 4) {
        rules.drop(DataFaultKind::kBadLine, "bbox is no list of 4 numbers");
        continue;
      }
      const auto name = category_names_.find(box.category_id);
      if (name == category_names_.end()) {
        rules.drop(DataFaultKind::kBadClass,
                   cat("there is no category ", box.category_id));
        continue;
      }
      const auto class_index =
          classes_.find(name->second, box.line, result.labels);
      if (!class_index) continue;
      if (box.has_bad_outline) {
        rules.fault(DataFaultKind::kBadLine,
                    "segmentation has a part that is no list of 3 or more "
                    "pairs",
                    "outline left out, box kept");
      }
      const auto& [x, y, w, h] = box.bbox;
      const size_t before = result.labels.boxes.size();
      rules.add_pixels(
          *class_index, {x, y, x + w, y + h}, size,
          box.has_bad_outline ? Outline() : joined_outline(box.outline, size));
      if (result.labels.boxes.size() > before && box.has_outline &&
          !box.has_bad_outline) {
        ++result.labels.num_polygons;
      }
    }
    return result;
  }

 private:
  static constexpr size_t kLeftOut = SIZE_MAX;

  static std::string name_of(const CocoAnnotation& box) {
    return box.id ? cat("annotation ", *box.id)
                  : cat("a box of image ", box.image_id);
  }

  std::map<int64_t, std::string> category_names_;
  std::vector<std::vector<CocoAnnotation>> boxes_;  // each image's boxes
};

}  // namespace

std::unique_ptr<LabelReader> open_coco_labels(const fs::path& file,
                                              const fs::path& images,
                                              const ClassRules& classes,
                                              DataReport& report,
                                              bool keep_outlines) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  return std::make_unique<CocoLabels>(whole, folder_of_images(whole, images),
                                      classes, report, keep_outlines);
}

}  // namespace headroom::labels
