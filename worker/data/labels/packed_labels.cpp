// Reads the labels of a split in packs. The boxes are in the packs' index.
#include <algorithm>
#include <utility>

#include "worker/data/labels/label_reader.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

class PackedLabels : public LabelReader {
 public:
  PackedLabels(packs::Pack pack, const ClassRules& classes, bool keep_outlines,
               DataReport& report)
      : pack_(std::move(pack)),
        classes_(classes),
        keep_outlines_(keep_outlines) {
    report_damage(pack_, report);
    for (int64_t i = 0; i < pack_.index->size(); ++i) {
      if (std::ranges::binary_search(pack_.damaged, i)) continue;
      images_.push_back(pack_.index->path(i).string());
      numbers_.push_back(i);
    }
  }

  const std::vector<std::string>& images() const override { return images_; }
  bool is_in_pixels() const override { return false; }

  ImageLabels read(size_t index, codecs::ImageSize) const override {
    const auto own = pack_.labels.of(pack_.index->image(numbers_[index]));
    return {.file = pack_.index->file().string(),
            .labels = labels_of(own, classes_, keep_outlines_),
            .fault = std::nullopt};
  }

 private:
  const packs::Pack pack_;
  const ClassRules classes_;
  const bool keep_outlines_;
  std::vector<std::string> images_;
  std::vector<int64_t> numbers_;  // number of each image in the index
};

}  // namespace

bool is_packed(const std::vector<fs::path>& sources) {
  return std::ranges::all_of(sources, [](const fs::path& source) {
    return source.extension() == packs::kIndexSuffix;
  });
}

void report_damage(const packs::Pack& pack, DataReport& report) {
  for (const int64_t image : pack.damaged) {
    report.add({DataFaultKind::kUnreadableImage,
                pack.index->path(image).string(),
                "its entry in " + pack.index->file().string() + " is damaged",
                "image and its boxes left out"});
  }
}

LabelFile labels_of(const packs::ImageLabels& own, const ClassRules& classes,
                    bool keep_outlines) {
  const auto num_classes = static_cast<int32_t>(classes.names.size());
  LabelFile labels;
  size_t first_point = 0;
  for (size_t i = 0; i < own.boxes.size(); ++i) {
    const packs::IndexedBox& packed = own.boxes[i];
    const auto points = own.points.subspan(first_point, packed.num_points);
    first_point += packed.num_points;
    const BoxLabel box = {classes.single_cls ? 0 : packed.class_index,
                          packed.cx, packed.cy, packed.w, packed.h};
    // With a single class, boxes of two classes at one place are duplicates.
    if (classes.single_cls && std::ranges::count(labels.boxes, box) > 0) {
      continue;
    }
    labels.largest_class =
        std::max<int64_t>(labels.largest_class, packed.class_index);
    labels.has_class_zero |= packed.class_index == 0;
    if (box.class_index >= num_classes && !classes.single_cls &&
        !labels.unknown_class) {
      labels.unknown_class = {static_cast<int64_t>(i) + 1,
                              std::to_string(box.class_index)};
    }
    labels.boxes.push_back(box);
    if (packed.num_points > 0) ++labels.num_polygons;
    if (!keep_outlines) continue;
    Outline& outline = labels.outlines.emplace_back();
    for (const packs::IndexedPoint& point : points) {
      outline.push_back({point[0], point[1]});
    }
  }
  labels.objects = static_cast<int64_t>(labels.boxes.size());
  return labels;
}

std::unique_ptr<LabelReader> open_packed_labels(const fs::path& index,
                                                const ClassRules& classes,
                                                DataReport& report,
                                                bool keep_outlines) {
  return std::make_unique<PackedLabels>(packs::read_pack(index), classes,
                                        keep_outlines, report);
}

}  // namespace headroom::labels
