#include "worker/data/labels/label_reader.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "configs/voc_folder.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/geojson.h"
#include "worker/maps/map_plugin.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

template <typename Value>
const Value& of_split(Split split, const Value& train, const Value& val,
                      const Value& test) {
  switch (split) {
    case Split::kTrain:
      return train;
    case Split::kVal:
      return val;
    case Split::kTest:
      break;
  }
  return test;
}

class YoloLabels : public OwnFileLabels {
 public:
  YoloLabels(std::vector<std::string> images, const ClassRules& classes)
      : OwnFileLabels(std::move(images)), classes_(classes) {}

  bool is_in_pixels() const override { return false; }

  std::vector<std::string> label_files(size_t index) const override {
    return label_paths(images_[index]);
  }

  ImageLabels read_text(size_t, codecs::ImageSize, const std::string& file,
                        std::string_view text) const override {
    // An empty file means that its image has no box.
    const std::string kind =
        text.empty() ? ""
                     : to_string(foreign_kind(text.substr(0, kFileHeadBytes)));
    if (!kind.empty()) {
      return unreadable_labels(file, kind + ", not lines `class cx cy w h`");
    }
    return {.file = file,
            .labels = parse_label_file(
                text, file, static_cast<int64_t>(classes_.names.size()),
                classes_.single_cls),
            .fault = std::nullopt};
  }

 private:
  const ClassRules classes_;
};

// Tests whether files exist by listing their folders: one request per folder
// instead of one per file. Only the newest folder is cached, so this is fast
// only if files are tested folder by folder.
class FolderLists {
 public:
  bool has(const std::string& file) {
    const size_t slash = file.rfind('/') + 1;
    if (file.compare(0, slash, folder_) != 0) {
      folder_ = file.substr(0, slash);
      names_ = names_in(folder_);
    }
    return std::ranges::binary_search(names_, file.substr(slash));
  }

 private:
  std::string folder_;
  std::vector<std::string> names_;  // sorted
};

// Images grouped by the format of their labels; each list keeps the order.
struct ImagesByForm {
  std::vector<std::string> yolo, geojson, voc;
};

ImagesByForm by_form(std::vector<std::string> images) {
  std::array<FolderLists, 2> lists;  // one for each candidate of label_paths()
  const auto has_one_of = [&lists](const std::vector<std::string>& paths) {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (lists[i].has(paths[i])) return true;
    }
    return false;
  };
  ImagesByForm result;
  const auto form_of = [&](const std::string& image) {
    if (has_one_of(label_paths(image))) return &result.yolo;
    if (has_one_of(geojson_paths(image))) return &result.geojson;
    return file_exists(first_existing(voc_files_of(image))) ? &result.voc
                                                            : &result.yolo;
  };
  for (std::string& image : images) {
    std::vector<std::string>* const form = form_of(image);
    form->push_back(std::move(image));
  }
  return result;
}

// Returns the map plugin or throws. `what` names the labels that need it.
maps::MapApi& required_maps(const std::string& what) {
  const maps::MapPlugin plugin = maps::load_map_plugin();
  if (plugin.api != nullptr) return *plugin.api;
  throw Error("data", what + " has coordinates of maps, but " + plugin.reason,
              "or give the images labels in pixels", ExitCode::kData);
}

// The folders in which a table for the image may be: the folder of the data
// file, then for ROOT/images/train/a.jpg the folders ROOT/images/train,
// ROOT/images and ROOT.
std::vector<fs::path> folders_of_tables(const configs::DataConfig& config,
                                        const fs::path& first_image) {
  std::vector<fs::path> folders = {config.file.parent_path()};
  fs::path folder = first_image.parent_path();
  for (int i = 0; i < 3 && folder.has_relative_path(); ++i) {
    folders.push_back(folder);
    const bool is_images = folder.filename() == "images";
    folder = folder.parent_path();
    if (!is_images) continue;
    folders.push_back(folder);
    break;
  }
  return folders;
}

// Returns "" if no folder contains a file with one of the names.
fs::path find_table(const std::vector<fs::path>& folders,
                    const std::vector<std::string>& names) {
  for (const fs::path& folder : folders) {
    for (const std::string& name : names) {
      std::error_code error;
      if (fs::is_regular_file(folder / name, error)) return folder / name;
    }
  }
  return "";
}

// Finds the table for images that have no label files of their own. It is named
// after the split, after their folder (test_labels.csv for images/test), or
// after train if the split uses train's images.
fs::path table_of(const configs::DataConfig& config, Split split,
                  const std::vector<std::string>& images) {
  if (images.empty()) return "";
  std::vector<std::string> names = {
      split_name(split) + "_labels.csv",
      fs::path(images.front()).parent_path().filename().string() +
          "_labels.csv"};
  if (split_sources(config, split) == config.train) {
    names.emplace_back("train_labels.csv");
  }
  const fs::path table =
      find_table(folders_of_tables(config, images.front()), names);
  if (table.empty()) return "";
  const bool has_texts = std::ranges::any_of(
      images,
      [](const std::string& image) { return file_exists(label_path(image)); });
  return has_texts ? "" : fs::absolute(table).lexically_normal();
}

void keep_each_once(std::vector<SplitImage>& images, DataReport& report) {
  if (!std::ranges::is_sorted(images, path_precedes, &SplitImage::path)) {
    std::ranges::stable_sort(images, path_precedes, &SplitImage::path);
  }
  size_t kept = 0;
  for (const SplitImage& image : images) {
    if (kept > 0 && images[kept - 1].path == image.path) {
      report.add({DataFaultKind::kListedTwice, std::string(image.path), "",
                  "used once"});
    } else {
      images[kept++] = image;
    }
  }
  images.resize(kept);
}

}  // namespace

bool add_image(std::string_view image, const std::string& reason,
               const ImageLabels& labels, DataReport& report) {
  add_classes(labels.labels, report);
  if (labels.fault) {
    report.add(*labels.fault);
    return false;
  }
  if (!reason.empty()) {
    report.add({DataFaultKind::kUnreadableImage, std::string(image), reason,
                "image and its boxes left out"});
    return false;
  }
  for (const DataFault& fault : labels.labels.faults) report.add(fault);
  const auto boxes = static_cast<int64_t>(labels.labels.boxes.size());
  ++report.images;
  report.boxes += boxes;
  if (boxes == 0) ++report.background;
  return true;
}

ImageLabels unreadable_labels(const std::string& file, std::string reason) {
  return {.file = file,
          .labels = {},
          .fault = DataFault{DataFaultKind::kUnreadableLabels, file,
                             std::move(reason), "its image left out"}};
}

ImageLabels LabelReader::read_text(size_t index, codecs::ImageSize size,
                                   const std::string&, std::string_view) const {
  return read(index, size);
}

ImageLabels OwnFileLabels::read(size_t index, codecs::ImageSize size) const {
  const std::string file = first_existing(label_files(index));
  std::string reason;
  const auto text = read_label_text(file, reason);
  return text ? read_text(index, size, file, *text)
              : unreadable_labels(file, std::move(reason));
}

bool TableLabels::check_name(const std::string& key, const std::string& name,
                             std::string where, DataReport& report) {
  if (stays_in_folder(name)) return true;
  report.add({DataFaultKind::kUnreadableImage, std::move(where),
              key + " '" + name + "' is empty or leads out of its folder",
              "image and its boxes left out"});
  return false;
}

fs::path folder_of_images(const fs::path& file, const fs::path& images) {
  return images.empty() ? file.parent_path() : fs::absolute(images);
}

std::string split_name(Split split) {
  return of_split<std::string>(split, "train", "val", "test");
}

std::vector<Split> named_splits(const configs::DataConfig& config) {
  std::vector<Split> splits = {Split::kTrain, Split::kVal};
  if (!config.test.empty()) splits.push_back(Split::kTest);
  return splits;
}

const std::vector<fs::path>& split_sources(const configs::DataConfig& config,
                                           Split split) {
  const auto& sources = of_split(split, config.train, config.val, config.test);
  if (sources.empty()) {
    const std::string name = split_name(split);
    throw Error("data", config.file.string() + " names no images for " + name,
                "add the key " + name, ExitCode::kData);
  }
  return sources;
}

const fs::path& split_images(const configs::DataConfig& config, Split split) {
  return of_split(split, config.train_images, config.val_images,
                  config.test_images);
}

std::optional<int32_t> ClassRules::find(const std::string& name, int64_t line,
                                        LabelFile& labels) const {
  if (single_cls) return 0;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) {
    return static_cast<int32_t>(found - names.begin());
  }
  if (!labels.unknown_class) labels.unknown_class = {line, "'" + name + "'"};
  return std::nullopt;
}

SplitImages open_split(const configs::DataConfig& config, Split split,
                       bool single_cls, DataReport& report,
                       bool keep_outlines) {
  const ClassRules classes{config.names, single_cls};
  SplitImages result;
  std::vector<fs::path> folders_and_lists;
  for (const fs::path& source : split_sources(config, split)) {
    const fs::path suffix = source.extension();
    if (suffix == ".geojson" || (suffix == ".json" && is_geojson(source))) {
      result.readers.push_back(
          open_geojson_labels(source, split_images(config, split), classes,
                              report, required_maps(source.string())));
    } else if (suffix == ".json") {
      result.readers.push_back(open_coco_labels(
          source, split_images(config, split), classes, report, keep_outlines));
    } else if (suffix == ".csv") {
      result.readers.push_back(open_csv_labels(
          source, split_images(config, split), classes, report));
    } else if (is_packed({source})) {
      result.readers.push_back(
          open_packed_labels(source, classes, report, keep_outlines));
    } else if (configs::is_voc_split(source)) {
      result.readers.push_back(open_voc_labels(source, classes, report));
    } else {
      folders_and_lists.push_back(source);
    }
  }
  if (!folders_and_lists.empty()) {
    ImagesByForm forms = by_form(list_images(folders_and_lists, report));
    std::vector<std::string>& images = forms.yolo;
    const fs::path table = forms.voc.empty() && forms.geojson.empty()
                               ? table_of(config, split, images)
                               : fs::path();
    if (!forms.geojson.empty()) {
      maps::MapApi& maps =
          required_maps(first_existing(geojson_paths(forms.geojson.front())));
      result.readers.push_back(
          open_geojson_files(std::move(forms.geojson), classes, maps));
    }
    if (!forms.voc.empty()) {
      result.readers.push_back(open_voc_files(std::move(forms.voc), classes));
    }
    auto in_table = table.empty()
                        ? nullptr
                        : open_csv_labels_of(table, images, classes, report);
    if (in_table) {
      report.table = table.string();
      const std::set<std::string_view> named(in_table->images().begin(),
                                             in_table->images().end());
      std::erase_if(images, [&](const std::string& image) {
        return named.contains(image);
      });
      result.readers.push_back(std::move(in_table));
    }
    result.readers.push_back(
        std::make_unique<YoloLabels>(std::move(images), classes));
  }
  for (const auto& reader : result.readers) {
    for (size_t i = 0; i < reader->images().size(); ++i) {
      result.images.push_back({reader->images()[i], reader.get(), i});
    }
  }
  keep_each_once(result.images, report);
  return result;
}

std::string unused_table(const configs::DataConfig& config,
                         const std::string& split,
                         const std::vector<SplitImage>& images) {
  return find_table(
             folders_of_tables(
                 config, images.empty() ? fs::path() : images.front().path),
             {split + "_labels.csv", "labels.csv", "_annotations.csv",
              "_annotations.coco.json"})
      .string();
}

}  // namespace headroom::labels
