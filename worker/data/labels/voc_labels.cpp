// Reads labels in the format of Pascal VOC:
//
//   FOLDER/ImageSets/Main/train.txt   one stem per line; the rest is unused
//   FOLDER/Annotations/STEM.xml       object: name, bndbox: xmin ymin xmax ymax
//   FOLDER/JPEGImages/**/STEM.*       the image, or if there is none here:
//   FOLDER/../images/**/STEM.*        the image
//
// or an annotation beside its image, STEM.xml, with the same content.
//
// Corners are taken as written, without the offset of one pixel that the first
// tools for this format had. `filename` and `path` are often stale and are not
// read; `size` is compared with the image's (BoxRules::in_units_of).
// `difficult` objects count as ordinary boxes. An image without an annotation
// is background.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/voc_folder.h"
#include "configs/yaml/line_reader.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// The parsed tree can take twenty times as much memory as the text.
constexpr size_t kMostBytes = size_t{4} << 20;

// All images below the folder by stem; if several images have the same stem,
// only the first of them.
std::map<std::string, std::string> images_by_stem(const fs::path& folder) {
  std::map<std::string, std::string> result;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return result;
  DataReport ignored;  // files that are not images need no report
  for (const std::string& image : list_images({folder}, ignored)) {
    result.emplace(fs::path(image).stem().string(), image);
  }
  return result;
}

// The lines of a list that name images.
std::vector<std::string> read_names(const fs::path& list) {
  std::ifstream stream(list, std::ios::binary);
  if (!stream) {
    throw Error("data", list.string() + " cannot be read",
                "correct its permissions", ExitCode::kData);
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::string> names;
  LineReader lines(text);
  while (lines.next()) {
    const std::string_view name = unquoted(lines.line());
    if (!name.empty() && name.front() != '#') names.emplace_back(name);
  }
  return names;
}

// The name without the flag 1, 0 or -1 that may follow it.
std::string without_flag(const std::string& name) {
  const size_t blank = name.find_last_of(" \t");
  if (blank == std::string::npos) return name;
  const std::string flag = name.substr(blank + 1);
  const bool is_flag = flag == "1" || flag == "0" || flag == "-1";
  return is_flag ? std::string(trimmed(name.substr(0, blank))) : name;
}

// Converts positions in a text to line numbers.
class Lines {
 public:
  explicit Lines(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') ends_.push_back(static_cast<std::ptrdiff_t>(i));
    }
  }
  int64_t at(std::ptrdiff_t offset) const {
    return std::lower_bound(ends_.begin(), ends_.end(), offset) -
           ends_.begin() + 1;
  }

 private:
  std::vector<std::ptrdiff_t> ends_;
};

// The box of an object: its bndbox in any order of corners, or if it has none,
// the box around its polygon.
struct ObjectBox {
  BoxExtent corners;
  bool is_of_polygon = false;
};
std::optional<ObjectBox> box_of(const pugi::xml_node& object) {
  const pugi::xml_node box = object.child("bndbox");
  const auto x1 = parse_number(box.child("xmin").text().get());
  const auto y1 = parse_number(box.child("ymin").text().get());
  const auto x2 = parse_number(box.child("xmax").text().get());
  const auto y2 = parse_number(box.child("ymax").text().get());
  if (x1 && y1 && x2 && y2) return ObjectBox{{*x1, *y1, *x2, *y2}, false};
  if (box) return std::nullopt;
  // <polygon><x1>1</x1><y1>2</y1><x2>..
  PixelRing ring;
  std::optional<double> x;
  for (const pugi::xml_node value : object.child("polygon").children()) {
    const std::string_view name = value.name();
    const auto number = parse_number(value.text().get());
    if (name.starts_with('x')) x = number;
    if (name.starts_with('y') && x && number) ring.push_back({*x, *number});
  }
  if (ring.empty()) return std::nullopt;
  return ObjectBox{extent_of({&ring, 1}), true};
}

// The size that the annotation states; {0, 0} if it states none.
codecs::ImageSize stated_size(const pugi::xml_node& annotation) {
  const pugi::xml_node size = annotation.child("size");
  return {size.child("height").text().as_int(),
          size.child("width").text().as_int()};
}

void read_objects(const pugi::xml_document& document, std::string_view text,
                  const ClassRules& classes, const std::string& image,
                  codecs::ImageSize size, ImageLabels& result) {
  const Lines lines(text);
  BoxRules rules(result.labels);
  const pugi::xml_node annotation = document.child("annotation");
  std::vector<BoxExtent> boxes;
  for (const pugi::xml_node object : annotation.children("object")) {
    if (const auto box = box_of(object)) boxes.push_back(box->corners);
  }
  rules.at(result.file);
  rules.in_units_of(boxes, stated_size(annotation), size, image);
  for (const pugi::xml_node object : annotation.children("object")) {
    ++result.labels.objects;
    const std::string name(trimmed(object.child("name").text().get()));
    const int64_t line = lines.at(object.offset_debug());
    rules.at(cat(result.file, ":", line),
             "object '" + name.substr(0, 40) + "'");
    const auto box = box_of(object);
    if (!box) {
      rules.drop(DataFaultKind::kBadLine,
                 "bndbox has not four numbers xmin, ymin, xmax, ymax");
      continue;
    }
    const auto class_index = classes.find(name, line, result.labels);
    if (!class_index) continue;
    if (box->is_of_polygon) {
      rules.fault(DataFaultKind::kNoBox, "bndbox is missing",
                  "the polygon's box used");
    }
    rules.add_pixels(*class_index, box->corners, size);
  }
}

// Whether the text looks like XML, which may also be UTF-16.
bool is_markup(std::string_view text) {
  const ForeignKind kind = foreign_kind(text.substr(0, kFileHeadBytes));
  return kind == ForeignKind::kMarkup || kind == ForeignKind::kUtf16;
}

std::string what_it_is(std::string_view text) {
  const std::string kind =
      to_string(foreign_kind(text.substr(0, kFileHeadBytes)));
  return (kind.empty() ? "no XML" : kind) + ", not a Pascal VOC annotation";
}

// The boxes of one annotation.
ImageLabels read_annotation_text(const std::string& file, std::string_view text,
                                 const ClassRules& classes,
                                 const std::string& image,
                                 codecs::ImageSize size) {
  if (text.size() > kMostBytes)
    return unreadable_labels(file, "more than 4 MiB of XML");
  if (!is_markup(text)) return unreadable_labels(file, what_it_is(text));
  pugi::xml_document document;
  const pugi::xml_parse_result parsed =
      document.load_buffer(text.data(), text.size());
  if (!parsed) {
    return unreadable_labels(
        file, cat(std::string(parsed.description()), ", in line ",
                  Lines(text).at(parsed.offset)));
  }
  if (!document.child("annotation")) {
    return unreadable_labels(file, "its root is not 'annotation'");
  }
  ImageLabels result;
  result.file = file;
  read_objects(document, text, classes, image, size, result);
  return result;
}

// Reads annotations beside their images, where labelling programs write them.
class VocFiles : public OwnFileLabels {
 public:
  VocFiles(std::vector<std::string> images, ClassRules classes)
      : OwnFileLabels(std::move(images)), classes_(std::move(classes)) {}

  bool is_in_pixels() const override { return true; }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    const std::string file = first_existing(label_files(index));
    // An empty file is a fault, but a missing file means background.
    if (file_exists(file)) return OwnFileLabels::read(index, size);
    return {.file = file, .labels = {}, .fault = std::nullopt};
  }

  std::vector<std::string> label_files(size_t index) const override {
    return voc_files_of(images_[index]);
  }

  ImageLabels read_text(size_t index, codecs::ImageSize size,
                        const std::string& file,
                        std::string_view text) const override {
    return read_annotation_text(file, text, classes_, images_[index], size);
  }

 private:
  const ClassRules classes_;
};

// The images of a split, and their stems.
struct VocImages {
  std::vector<std::string> images, stems;
};

VocImages images_of(const fs::path& split, const fs::path& folder,
                    DataReport& report) {
  VocImages result;
  const auto beside = images_by_stem(folder / "JPEGImages");
  std::optional<std::map<std::string, std::string>> above;
  int64_t line = 0;
  for (const std::string& name : read_names(split)) {
    ++line;
    std::string stem = name;
    auto found = beside.find(stem);
    bool has_image = found != beside.end();
    if (!has_image) {
      stem = without_flag(name);
      found = beside.find(stem);
      has_image = found != beside.end();
    }
    if (!has_image) {
      if (!above) above = images_by_stem(folder.parent_path() / "images");
      found = above->find(stem);
      has_image = found != above->end();
    }
    if (!has_image) {
      report.add({DataFaultKind::kUnreadableImage,
                  cat(split.string(), ":", line),
                  "no image '" + stem + "' in JPEGImages or in ../images",
                  "left out"});
      continue;
    }
    result.images.push_back(found->second);
    result.stems.push_back(std::move(stem));
  }
  return result;
}

class VocSplit : public VocFiles {
 public:
  VocSplit(VocImages images, ClassRules classes, fs::path folder)
      : VocFiles(std::move(images.images), std::move(classes)),
        folder_(std::move(folder)),
        stems_(std::move(images.stems)) {}

  std::vector<std::string> label_files(size_t index) const override {
    return {(folder_ / "Annotations" / (stems_[index] + ".xml")).string()};
  }

 private:
  const fs::path folder_;
  const std::vector<std::string> stems_;
};

}  // namespace

std::vector<std::string> voc_files_of(std::string_view image) {
  std::vector<std::string> files = {with_suffix(image, ".xml")};
  constexpr std::string_view kImages = "/images/";
  const size_t at = files[0].rfind(kImages);
  if (at == std::string::npos) return files;
  for (const char* folder : {"/labels/", "/annotations/", "/Annotations/"}) {
    files.push_back(std::string(files[0]).replace(at, kImages.size(), folder));
  }
  return files;
}

std::unique_ptr<LabelReader> open_voc_files(std::vector<std::string> images,
                                            const ClassRules& classes) {
  return std::make_unique<VocFiles>(std::move(images), classes);
}

std::unique_ptr<LabelReader> open_voc_labels(const fs::path& given,
                                             const ClassRules& classes,
                                             DataReport& report) {
  const fs::path split = fs::absolute(given).lexically_normal();
  const fs::path folder = configs::voc_folder_of(split);
  return std::make_unique<VocSplit>(images_of(split, folder, report), classes,
                                    folder);
}

}  // namespace headroom::labels
