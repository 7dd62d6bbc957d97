#include "worker/data/labels/label_reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "configs/voc_folder.h"
#include "configs/yaml/line_reader.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
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
  YoloLabels(std::vector<std::string> images, const ClassRules& classes,
             const RowForm& form)
      : OwnFileLabels(std::move(images)), classes_(classes), form_(form) {}

  bool is_in_pixels() const override { return form_.is_in_pixels(); }

  std::vector<std::string> label_files(size_t index) const override {
    return label_paths(images_[index]);
  }

  ImageLabels read_text(size_t, codecs::ImageSize size, const std::string& file,
                        std::string_view text) const override {
    // An empty file means that its image has no box.
    const std::string kind =
        text.empty() ? ""
                     : to_string(foreign_kind(text.substr(0, kFileHeadBytes)));
    if (!kind.empty()) {
      return unreadable_labels(file, kind + ", not lines `class cx cy w h`");
    }
    return {.file = file,
            .labels = parse_label_file(text, file, classes_, form_, size),
            .fault = std::nullopt};
  }

 private:
  const ClassRules classes_;
  const RowForm form_;
};

// Images of a split and the texts of their label files, one for each image.
struct LabelSample {
  std::vector<std::string> images, texts;
};

// At most `most` images with label files, evenly spread.
LabelSample label_sample(const std::vector<std::string>& images, size_t most) {
  LabelSample sample;
  const size_t tries = std::min(images.size(), most * 4);
  for (size_t i = 0; i < tries && sample.texts.size() < most; ++i) {
    const std::string& image = images[i * images.size() / tries];
    std::string reason;
    auto text = read_label_text(label_path(image), reason);
    if (!text || text->empty() ||
        foreign_kind(text->substr(0, kFileHeadBytes)) != ForeignKind::kNone) {
      continue;
    }
    sample.images.push_back(image);
    sample.texts.push_back(std::move(*text));
  }
  return sample;
}

// Whether numbers up to kMostPercent cannot be all pixels of these images,
// because the images are larger.
bool are_above_percent(std::span<const std::string> images) {
  return std::ranges::all_of(images, [](const std::string& image) {
    const auto header = codecs::read_image_size(image, {});
    return !header.ok() ||
           std::max(header.size.width, header.size.height) > kMostPercent;
  });
}

// Finds out from a sample how the rows of the images' label files are written,
// and reports it. Most data sets have plain rows, for which a few files are
// enough. Throws Error (exit 4) if rows of that form are not read.
RowForm form_of_rows(const std::vector<std::string>& images, bool has_keypoints,
                     DataReport& report) {
  constexpr size_t kFewFiles = 6, kManyFiles = 128;
  LabelSample sample = label_sample(images, kFewFiles);
  if (!are_plain_rows(sample.texts)) sample = label_sample(images, kManyFiles);
  RowForm form = row_form(sample.texts, has_keypoints);
  if (form.shape == RowForm::Shape::kPercent &&
      !are_above_percent(sample.images)) {
    form.shape = RowForm::Shape::kYolo;
  }
  if (form.text().empty() || sample.images.empty()) return form;
  const std::string first = label_path(sample.images.front());
  if (!form.refusal().empty()) {
    throw Error("data",
                "the rows of " + first + " and the other label files are " +
                    form.text(),
                std::string(form.refusal()), ExitCode::kData);
  }
  std::string note = report.split + ": the rows of the label files, first " +
                     first + ", are read as " + form.text();
  if (form.stick_out > 0) {
    note +=
        cat(" (", form.stick_out, " of ", form.boxes,
            " looked at): ", std::string(remedy_of(DataFaultKind::kOtherSize)));
  }
  report.notes.push_back(std::move(note));
  return form;
}

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

// The folders in which a file about an image's labels may be: the folder of the
// data file, then for ROOT/images/train/a.jpg the folders ROOT/images/train,
// ROOT/images and ROOT; also for ROOT/labels/train/a.txt.
std::vector<fs::path> folders_of_tables(const configs::DataConfig& config,
                                        const fs::path& file) {
  std::vector<fs::path> folders = {config.file.parent_path()};
  fs::path folder = file.parent_path();
  for (int i = 0; i < 3 && folder.has_relative_path(); ++i) {
    folders.push_back(folder);
    const fs::path name = folder.filename();
    folder = folder.parent_path();
    if (name != "images" && name != "labels") continue;
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

// The image's name in lower case without suffixes and blanks, by which label
// files with similar names are found.
std::string rough_name(std::string_view file) {
  std::string name = with_suffix(file.substr(file.rfind('/') + 1), "");
  if (is_image_name(name)) name = with_suffix(name, "");
  std::string rough;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0) rough += static_cast<char>(std::tolower(byte));
  }
  return rough;
}

// Whether a file in a folder of labels may hold labels of one image.
bool is_label_name(const std::string& name) {
  static const std::set<std::string> others = {
      "classes.txt", "labels.txt", "names.txt", "notes.txt", "readme.txt",
      "train.txt",   "val.txt",    "test.txt",  "valid.txt"};
  const std::string suffix = lower_suffix(name);
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return (suffix == ".txt" || suffix == ".xml") && !is_hidden_copy(name) &&
         !others.contains(lower);
}

// Compares the label files in one folder with the images that may have labels
// there.
class LabelFolder {
 public:
  // `folder` is the label folder of `images`. `is_beside`: the folder contains
  // the images too.
  LabelFolder(std::string folder, const std::vector<std::string_view>& images,
              bool is_beside)
      : folder_(std::move(folder)), names_(names_in(folder_)) {
    std::vector<bool> is_read(names_.size());
    for (const std::string_view image : images) {
      bool has_labels = false;
      for (const char* suffix : {".txt", ".xml", ".geojson"}) {
        const std::string name =
            with_suffix(image.substr(image.rfind('/') + 1), suffix);
        const auto found = std::ranges::lower_bound(names_, name);
        if (found == names_.end() || *found != name) continue;
        const auto at = static_cast<size_t>(found - names_.begin());
        if (is_read[at]) shared_.push_back(name);
        has_labels = is_read[at] = true;
        has_rows_ = has_rows_ || std::string_view(suffix) == ".txt";
      }
      if (!has_labels) unlabelled_.push_back(image);
    }
    std::vector<std::string> unread;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!is_read[i] && is_label_name(names_[i])) unread.push_back(names_[i]);
    }
    if (!unread.empty()) find_images_of(unread, images, is_beside);
  }

  void report_to(DataReport& report) const {
    for (const auto& [name, image] : orphans_) {
      std::string fix = "not read";
      if (!image.empty()) {
        fix +=
            ": for " + std::string(image.substr(image.rfind('/') + 1)) +
            " name it " +
            with_suffix(image.substr(image.rfind('/') + 1), lower_suffix(name));
      }
      report.add({DataFaultKind::kUnreadLabels, folder_ + name, "", fix});
    }
    for (const std::string& name : shared_) {
      report.add({DataFaultKind::kSharedLabels, folder_ + name,
                  "images differ only in their suffix",
                  "each has these boxes"});
    }
  }

  // Whether an image reads a YOLO label file of this folder.
  bool has_rows() const { return has_rows_; }
  bool has_orphans() const { return !orphans_.empty(); }
  const std::vector<std::string_view>& unlabelled() const {
    return unlabelled_;
  }

 private:
  void find_images_of(const std::vector<std::string>& unread,
                      const std::vector<std::string_view>& images,
                      bool is_beside) {
    std::map<std::string, std::string_view> by_name;
    for (const std::string_view image : unlabelled_) {
      by_name.emplace(rough_name(image), image);
    }
    // An image of another split may have these labels.
    const std::set<std::string> of_others = stems_beside(images.front());
    for (const std::string& name : unread) {
      if (name.ends_with(lower_suffix(name)) &&
          of_others.contains(with_suffix(name, ""))) {
        continue;
      }
      const auto near = by_name.find(rough_name(name));
      if (near != by_name.end()) {
        orphans_.emplace_back(name, near->second);
      } else if (!is_beside) {
        orphans_.emplace_back(name, std::string_view());
      }
    }
  }
  static std::set<std::string> stems_beside(std::string_view image) {
    std::set<std::string> stems;
    for (const std::string& name :
         names_in(std::string(image.substr(0, image.rfind('/') + 1)))) {
      if (is_image_name(name)) stems.insert(with_suffix(name, ""));
    }
    return stems;
  }

  const std::string folder_;  // with a slash at its end
  const std::vector<std::string> names_;
  std::vector<std::string> shared_;
  std::vector<std::string_view> unlabelled_;
  std::vector<std::pair<std::string, std::string_view>> orphans_;
  bool has_rows_ = false;
};

// Reports label files that belong to no image, and label files that belong to
// several images. Returns the folders of the images' YOLO label files.
std::vector<std::string> report_label_files(
    const std::vector<std::string>& images, DataReport& report) {
  std::vector<std::string> with_rows;
  std::map<std::string, std::vector<std::string_view>> by_folder;
  for (const std::string& image : images) {
    if (codecs::names_page(image)) continue;
    const std::vector<std::string> paths = label_paths(image);
    for (const std::string& path : paths) {
      by_folder[path.substr(0, path.rfind('/') + 1)].push_back(image);
    }
  }
  std::vector<std::string_view> unlabelled;
  for (const auto& [folder, own] : by_folder) {
    const bool is_beside = own.front().starts_with(folder) &&
                           own.front().rfind('/') + 1 == folder.size();
    const LabelFolder labels(folder, own, is_beside);
    labels.report_to(report);
    if (labels.has_rows()) with_rows.push_back(folder);
    if (!labels.has_orphans()) continue;
    unlabelled.insert(unlabelled.end(), labels.unlabelled().begin(),
                      labels.unlabelled().end());
  }
  if (unlabelled.empty()) return with_rows;
  report.notes.push_back(
      report.split + ": " +
      counted(static_cast<int64_t>(unlabelled.size()), "image") +
      " without a label file, taken as background: " +
      first_of(unlabelled, 3,
               [](std::string_view image) { return std::string(image); }));
  return with_rows;
}

// How a list of classes differs from `names`; "" if it does not.
std::string difference_from_names(const std::vector<std::string>& listed,
                                  const configs::DataConfig& config) {
  const std::string data = config.file.string();
  const auto [theirs, own] = std::ranges::mismatch(listed, config.names);
  std::vector<std::string> differences;
  if (theirs != listed.end() && own != config.names.end()) {
    differences.push_back(cat("says class ", theirs - listed.begin(), " is '",
                              short_line(*theirs, 200), "', ", data, " says '",
                              *own, "'"));
  }
  if (listed.size() != config.names.size()) {
    differences.push_back(cat("has ", counted(std::ssize(listed), "class"),
                              ", ", data, " names ", config.names.size()));
  }
  return joined(differences, "; ");
}

// As above, for a file with one class a line. An empty file is no list.
std::string difference_of_list(const fs::path& file,
                               const configs::DataConfig& config) {
  constexpr uint64_t kMostBytes = 4 << 20;
  const auto text = text_of_file(file, kMostBytes, Links::kFollowed);
  if (!text) return "cannot be read: " + file_fault();
  if (trimmed(*text).empty()) return "";
  const ForeignKind kind = foreign_kind(text->substr(0, kFileHeadBytes));
  if (kind != ForeignKind::kNone) return "is " + to_string(kind);
  std::vector<std::string> listed;
  for (LineReader lines(*text); lines.next();) {
    listed.emplace_back(trimmed(lines.line()));
  }
  while (!listed.empty() && listed.back().empty()) listed.pop_back();
  return difference_from_names(listed, config);
}

// Rows give classes as numbers, so labels are read with swapped classes if the
// program that wrote them had its classes in another order than `names`.
// labelImg, Label Studio, CVAT and Roboflow keep their order in a list in the
// folder of the labels or above it.
void report_class_lists(const std::vector<std::string>& folders_of_labels,
                        const configs::DataConfig& config, DataReport& report) {
  std::set<std::string> folders;
  for (const std::string& own : folders_of_labels) {
    for (const fs::path& near : folders_of_tables(config, own + "x.txt")) {
      std::string folder = fs::absolute(near / ".").lexically_normal().string();
      if (own.starts_with(folder)) folders.insert(std::move(folder));
    }
  }
  for (const std::string& folder : folders) {
    for (const char* name : {"classes.txt", "obj.names", "_darknet.labels"}) {
      if (!file_exists(folder + name)) continue;
      std::string what = difference_of_list(folder + name, config);
      if (what.empty()) continue;
      constexpr auto kKind = DataFaultKind::kOtherClasses;
      report.add({kKind, folder + name, std::move(what),
                  "`names` used; " + std::string(remedy_of(kKind))});
    }
  }
}

void keep_each_once(std::vector<SplitImage>& images, DataReport& report) {
  if (!std::ranges::is_sorted(images, path_precedes, &SplitImage::path)) {
    std::ranges::stable_sort(images, path_precedes, &SplitImage::path);
  }
  size_t kept = 0;
  for (const SplitImage& image : images) {
    if (kept > 0 && images[kept - 1].path == image.path) {
      report.add({DataFaultKind::kListedTwice, std::string(image.path), "",
                  images[kept - 1].reader == image.reader
                      ? "used once"
                      : "used once, with the labels of the first source"});
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
  report.objects += labels.labels.objects;
  if (labels.fault) {
    report.add(*labels.fault);
    return false;
  }
  if (!reason.empty()) {
    report.left_out += labels.labels.objects;
    report.add({DataFaultKind::kUnreadableImage, std::string(image), reason,
                "image and its boxes left out"});
    return false;
  }
  for (const DataFault& fault : labels.labels.faults) report.add(fault);
  const auto boxes = static_cast<int64_t>(labels.labels.boxes.size());
  report.crowds += labels.labels.crowds;
  report.dropped += labels.labels.dropped;
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

std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  return first_of(names, kShown, [](const std::string& name) { return name; });
}

std::optional<int32_t> ClassRules::find(const std::string& name, int64_t line,
                                        LabelFile& labels) const {
  if (single_cls) return 0;
  const auto found = std::find(names.begin(), names.end(), trimmed(name));
  if (found != names.end()) {
    return static_cast<int32_t>(found - names.begin());
  }
  ++labels.dropped;
  if (!labels.unknown_class) {
    labels.unknown_class = {line, "'" + std::string(trimmed(name)) + "'"};
  }
  return std::nullopt;
}

SplitImages open_split(const configs::DataConfig& config, Split split,
                       bool single_cls, DataReport& report,
                       bool keep_outlines) {
  const ClassRules classes{config.names, single_cls};
  SplitImages result;
  if (split == Split::kTrain) {
    report.notes.insert(report.notes.end(), config.notes.begin(),
                        config.notes.end());
  }
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
    std::vector<std::string> all = list_images(folders_and_lists, report);
    const std::vector<std::string> with_rows = report_label_files(all, report);
    ImagesByForm forms = by_form(std::move(all));
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
    const RowForm form = form_of_rows(images, config.has_keypoints, report);
    result.row_form = report.row_form = form.text();
    if (!single_cls && !form.has_names()) {
      report_class_lists(with_rows, config, report);
    }
    result.readers.push_back(
        std::make_unique<YoloLabels>(std::move(images), classes, form));
  }
  for (const auto& reader : result.readers) {
    for (size_t i = 0; i < reader->images().size(); ++i) {
      result.images.push_back({reader->images()[i], reader.get(), i});
    }
  }
  keep_each_once(result.images, report);
  return result;
}

std::optional<NamedFormat> foreign_labels(
    const configs::DataConfig& config, const std::vector<SplitImage>& images) {
  constexpr size_t kMostFiles = 64;
  std::vector<std::string> files;
  const fs::path image =
      images.empty() ? fs::path() : fs::path(images.front().path);
  const auto add_of = [&files](const fs::path& folder, int depth,
                               const auto& self) -> void {
    for (const std::string& name : names_in(folder.string())) {
      if (name.starts_with(".") || files.size() >= kMostFiles) continue;
      const std::string suffix = lower_suffix(name);
      const std::string path = (folder / name).string();
      std::error_code error;
      if (suffix == ".json" || suffix == ".xml" || suffix == ".csv") {
        files.push_back(path);
      } else if (depth > 0 && suffix.empty() && fs::is_directory(path, error)) {
        self(path, depth - 1, self);
      }
    }
  };
  if (!image.empty()) add_of(image.parent_path(), 0, add_of);
  for (const fs::path& folder : folders_of_tables(config, image)) {
    add_of(folder, 0, add_of);
  }
  add_of(config.file.parent_path(), 2, add_of);
  return named_format(files);
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
