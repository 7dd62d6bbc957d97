// Reads COCO's annotations. Categories are matched to `names` by name; their
// ids do not matter. Boxes are in pixels of the image as the file states its
// size (BoxRules::labelled_at). Crowds are regions, not objects, so they are
// not trained on.
//
// If `segmentation` is a list, it becomes the outline of its box.

#include <algorithm>
#include <map>
#include <string>
#include <system_error>
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
    // Several entries with the same file name are one image.
    std::map<int64_t, size_t> index_of;
    std::map<std::string, size_t> index_of_path;
    for (const CocoImage& image : content.images) {
      if (!check_name("file_name", image.file_name, place(image.line),
                      report)) {
        index_of.emplace(image.id, kLeftOut);
        continue;
      }
      std::string path = (folder / image.file_name).lexically_normal().string();
      const auto [at, is_new] = index_of_path.emplace(path, images_.size());
      index_of.emplace(image.id, at->second);
      if (!is_new) continue;
      images_.push_back(std::move(path));
      own_.emplace_back().stated = {static_cast<int32_t>(image.height),
                                    static_cast<int32_t>(image.width)};
    }
    note_folders_in_names(content.images, folder, report);
    std::vector<CocoAnnotation>& all = content.annotations;
    const auto has_crowd = [](const CocoAnnotation& box) { return box.crowd; };
    if (!all.empty() && std::ranges::all_of(all, has_crowd)) {
      for (CocoAnnotation& box : all) box.crowd = false;
      report.notes.push_back(report.split + ": every object of " + file_ +
                             " has iscrowd: 1, as programs that export masks "
                             "write it: they are read as objects");
    }
    for (CocoAnnotation& box : all) {
      const auto image = index_of.find(box.image_id);
      if (image == index_of.end()) {
        ++report.objects;
        ++report.dropped;
        report.add({DataFaultKind::kUnknownImage, place(box.line),
                    cat(name_of(box), ": image_id ", box.image_id),
                    "box dropped"});
      } else if (image->second == kLeftOut) {
        ++report.objects;
        ++report.left_out;
      } else if (box.crowd) {
        ++own_[image->second].crowds;
      } else {
        own_[image->second].boxes.push_back(std::move(box));
      }
    }
    find_units(report);
  }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    ImageLabels result;
    result.file = file_;
    BoxRules rules(result.labels);
    const OwnBoxes& own = own_[index];
    std::vector<BoxExtent> extents;
    for (const CocoAnnotation& box : own.boxes) {
      if (const auto extent = extent_of_box(box)) extents.push_back(*extent);
    }
    if (units_ != Units::kFractions && !own.boxes.empty()) {
      rules.at(place(own.boxes.front().line));
      rules.labelled_at(own.stated, size, images_[index], extents);
    }
    result.labels.objects = static_cast<int64_t>(own.boxes.size()) + own.crowds;
    result.labels.crowds = own.crowds;
    for (const CocoAnnotation& box : own.boxes) {
      rules.at(place(box.line), name_of(box));
      auto extent = extent_of_box(box);
      if (!extent) {
        rules.drop(DataFaultKind::kBadLine,
                   box.num_bbox == 0
                       ? "no bbox, and no outline as lists of points"
                       : "bbox is no list of 4 numbers");
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
      if (box.num_bbox == 0) {
        rules.fault(DataFaultKind::kNoBox, "bbox is missing",
                    "the outline's box used");
      }
      // Outlines have the units of their boxes.
      codecs::ImageSize unit = size;
      if (units_ == Units::kFractions) {
        *extent = pixels_of_fractions(*extent, size);
        unit = {1, 1};
      }
      const size_t before = result.labels.boxes.size();
      rules.add_pixels(
          *class_index, *extent, size,
          box.has_bad_outline ? Outline() : joined_outline(box.outline, unit));
      if (result.labels.boxes.size() > before && box.has_outline &&
          !box.has_bad_outline) {
        ++result.labels.num_polygons;
      }
    }
    return result;
  }

 private:
  static constexpr size_t kLeftOut = SIZE_MAX;

  struct OwnBoxes {
    codecs::ImageSize stated;  // {0, 0} if the file states none
    int64_t crowds = 0;
    std::vector<CocoAnnotation> boxes;
  };
  // What the four numbers of the boxes are.
  enum class Units : uint8_t {
    kPixels,     // x, y, width, height
    kCorners,    // x1, y1, x2, y2 in pixels
    kFractions,  // x, y, width, height as fractions of the image
  };

  // Returns the corners of a box in the file's units. If the box has no bbox,
  // returns the corners of its outline; if it has no outline either, nullopt.
  std::optional<BoxExtent> extent_of_box(const CocoAnnotation& box) const {
    if (box.num_bbox == 0 && box.outline_box) {
      const auto& [x1, y1, x2, y2] = *box.outline_box;
      return BoxExtent{x1, y1, x2, y2};
    }
    if (box.num_bbox != 4) return std::nullopt;
    const auto& [x, y, w, h] = box.bbox;
    if (units_ == Units::kCorners) return BoxExtent{x, y, w, h};
    return BoxExtent{x, y, x + w, y + h};
  }

  // Some programs write file_name with the folders or the address that the
  // image had there. Judges by the first image.
  void note_folders_in_names(const std::vector<CocoImage>& images,
                             const fs::path& folder, DataReport& report) {
    if (images.empty()) return;
    const std::string& name = images.front().file_name;
    const fs::path here = folder / fs::path(name).filename();
    std::error_code error;
    if (here == folder / name || fs::exists(folder / name, error) ||
        !fs::exists(here, error)) {
      return;
    }
    report.notes.push_back(report.split + ": file_name '" + name + "' in " +
                           file_ + " leads to no image, but " + here.string() +
                           " is there: remove the folders from file_name");
  }

  // Finds out whether the boxes are fractions or corners, and reports this.
  void find_units(DataReport& report) {
    std::vector<BoxExtent> extents;
    int64_t boxes = 0, corners = 0, stick_out = 0;
    for (const OwnBoxes& own : own_) {
      for (const CocoAnnotation& box : own.boxes) {
        const auto extent = extent_of_box(box);
        if (extent) extents.push_back(*extent);
        if (box.num_bbox != 4 || own.stated.width == 0) continue;
        const auto& [x, y, w, h] = box.bbox;
        ++boxes;
        corners +=
            x < w && y < h && w <= own.stated.width && h <= own.stated.height;
        stick_out +=
            x + w > own.stated.width + 1 || y + h > own.stated.height + 1;
      }
    }
    if (are_fractions(extents)) {
      units_ = Units::kFractions;
    } else if (mean_something_else(boxes, corners, stick_out)) {
      units_ = Units::kCorners;
    }
    if (units_ == Units::kPixels) return;
    report.notes.push_back(
        report.split + ": the boxes of " + file_ + " are read as " +
        (units_ == Units::kCorners
             ? "corners x1 y1 x2 y2: as x y width height many would stick out "
               "of their images"
             : "fractions of the images: all lie within 0 to 1"));
  }

  static std::string name_of(const CocoAnnotation& box) {
    return box.id ? cat("annotation ", *box.id)
                  : cat("a box of image ", box.image_id);
  }

  std::map<int64_t, std::string> category_names_;
  std::vector<OwnBoxes> own_;  // one for each image
  Units units_ = Units::kPixels;
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
