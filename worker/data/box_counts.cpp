#include "worker/data/box_counts.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "parallel/base/check.h"
#include "worker/data/file_list.h"
#include "worker/data/label_file.h"
#include "worker/data/parallel_for.h"

namespace headroom {
namespace {

constexpr int64_t kUnreadable = -1;

int64_t boxes_of(const std::filesystem::path& image, int64_t num_classes,
                 bool single_cls) {
  const std::filesystem::path file = label_path(image);
  std::string reason;
  const auto text = read_label_text(file, reason);
  if (!text) return kUnreadable;
  const LabelFile labels =
      parse_label_file(*text, file.string(), num_classes, single_cls);
  return static_cast<int64_t>(labels.boxes.size());
}

}  // namespace

std::vector<int64_t> count_boxes(const DataConfig& config, Split split,
                                 const IndexOptions& options) {
  DataReport ignored;  // the run's own report has the same faults
  const std::vector<std::filesystem::path> images =
      list_images(split_sources(config, split), ignored);
  std::vector<int64_t> boxes(images.size());
  const auto num_classes = static_cast<int64_t>(config.names.size());
  parallel_for(
      static_cast<int64_t>(images.size()), options.num_threads, [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        boxes[at] = boxes_of(images[at], num_classes, options.single_cls);
      });
  std::erase(boxes, kUnreadable);
  if (boxes.empty()) {
    throw Error("data",
                "no image to train on is named in " + config.file.string(),
                "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                "files",
                ExitCode::kData);
  }
  return boxes;
}

}  // namespace headroom
