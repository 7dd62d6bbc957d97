#include "configs/data_config.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>

#include "configs/voc_folder.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::configs {

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file) {
  std::map<std::string, size_t> first_uses;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [first, is_new] = first_uses.emplace(names[i], i);
    if (!is_new) {
      throw Error("data",
                  cat(file.string(), ": classes ", first->second, " and ", i,
                      " are both named '", short_line(names[i], 200), "'"),
                  "give each class a name of its own, or label both as one");
    }
    if (short_line(names[i], names[i].size()) == names[i]) continue;
    if (valid_utf8(names[i]) == names[i]) {
      throw Error(
          "data",
          cat(file.string(), ": the name of class ", i,
              " holds control characters: '", short_line(names[i], 200), "'"),
          "remove them: names are shown in tables and pictures");
    }
    throw Error("data",
                cat(file.string(), ": the name of class ", i, " is not UTF-8"),
                "save the file as UTF-8 (for XML, declare its encoding)");
  }
}

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostClasses = 100'000;

// Exporters of data sets write the keys from "roboflow" on; training ignores
// those keys.
const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys = {
      "path",      "train",     "val",      "test",      "names",
      "images",    "range",     "nc",       "download",  "channels",
      "roboflow",  "kpt_shape", "flip_idx", "kpt_names", "minival",
      "yaml_file", "author",    "date",     "version",   "description",
      "license",   "url",       "links"};
  return keys;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string list_paths(const std::vector<fs::path>& paths) {
  std::string text;
  for (size_t i = 0; i < paths.size(); ++i) {
    text += (i == 0 ? "" : " nor ") + paths[i].string();
  }
  return text;
}

void add_once(std::vector<fs::path>& paths, const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  if (std::find(paths.begin(), paths.end(), normal) == paths.end()) {
    paths.push_back(normal);
  }
}

// If `path`, which does not exist, has a usual mistake (a quote, a drive of
// Windows, ~, a variable), says what is wrong and what to write; else "".
std::string path_remedy(const std::string& path) {
  const bool has_control = std::ranges::any_of(
      path, [](unsigned char c) { return c < ' ' || c == 0x7F; });
  if (has_control) {
    return "it holds a tab or another control character, as \"\\t\" in double "
           "quotes makes one: write / for \\";
  }
  if (path.size() > 1 && path[1] == ':' &&
      std::isalpha(static_cast<unsigned char>(path[0])) != 0) {
    return "it begins with a drive of Windows: write a path of this machine, "
           "best relative to this file";
  }
  if (path.starts_with("~")) return "~ is not replaced: write the whole path";
  if (path.find('$') != std::string::npos) {
    return "a variable is not replaced: write the whole path";
  }
  for (const char quote : {'"', '\''}) {
    if (path.starts_with(quote) || path.ends_with(quote)) {
      return "remove the quote at its end";
    }
  }
  if (path.ends_with(',')) return "remove the comma at its end";
  return "";
}

// Returns `path` as it is written and, if it has the \ of Windows, also with /
// instead.
std::vector<std::string> spellings_of(const std::string& path) {
  std::vector<std::string> spellings = {path};
  if (path.find('\\') == std::string::npos) return spellings;
  spellings.push_back(path);
  std::ranges::replace(spellings.back(), '\\', '/');
  return spellings;
}

class Reader {
 public:
  Reader(const fs::path& file, const yaml::YamlValue& root)
      : folder_(fs::absolute(file).parent_path()), root_(root) {
    find_base();
  }

  std::vector<fs::path> split(const std::string& key) const {
    const yaml::YamlValue* value = root_.find(key);
    std::vector<fs::path> paths;
    if (value == nullptr || value->kind == yaml::YamlValue::Kind::kNull)
      return paths;
    if (value->kind != yaml::YamlValue::Kind::kSequence) {
      paths.push_back(source(*value, key));
      return paths;
    }
    if (value->items.empty()) {
      yaml::refuse(value->place, key + " is an empty list",
                   "name a folder or a list");
    }
    for (const yaml::YamlValue& item : value->items) {
      paths.push_back(source(item, key));
    }
    return paths;
  }

  // The image folder of a split's COCO JSONs; "" if none is given.
  fs::path images(const std::string& split) const {
    const yaml::YamlValue* value = root_.find("images");
    if (value != nullptr && value->kind == yaml::YamlValue::Kind::kMapping) {
      static const std::vector<std::string> splits = {"train", "val", "test"};
      yaml::require_mapping(*value, "images", splits);
      value = value->find(split);
    }
    if (value == nullptr || value->kind == yaml::YamlValue::Kind::kNull)
      return {};
    const fs::path folder = source(*value, "images");
    std::error_code error;
    if (fs::is_directory(folder, error)) return folder;
    yaml::refuse(value->place, "images: " + folder.string() + " is no folder",
                 "name the folder that file_name starts from");
  }

  // The folder in the key `path`, or without this key the folder of the file.
  // Returns no value if that folder is not a Pascal VOC folder.
  std::optional<fs::path> voc_folder() const {
    if (!is_voc_folder(bases_.front())) return std::nullopt;
    return bases_.front();
  }

 private:
  void find_base() {
    const yaml::YamlValue* value = root_.find("path");
    if (value == nullptr || value->kind == yaml::YamlValue::Kind::kNull) {
      add_once(bases_, folder_);
      add_once(bases_, fs::current_path());
      return;
    }
    const std::string path = yaml::as_text(*value, "path");
    std::vector<fs::path> tried;
    for (const std::string& spelling : spellings_of(path)) {
      add_once(tried, folder_ / spelling);
      add_once(tried, fs::current_path() / spelling);
    }
    for (const fs::path& base : tried) {
      std::error_code error;
      if (fs::is_directory(base, error)) {
        bases_ = {base};
        return;
      }
    }
    const bool has_download = root_.find("download") != nullptr;
    const std::string remedy = path_remedy(path);
    throw Error("data",
                yaml::to_string(value->place) + ": path: " + path +
                    ": there is no folder " + list_paths(tried),
                (remedy.empty() ? "put the data set there or correct the path"
                                : remedy) +
                    (has_download ? " ('download' is never run)" : ""));
  }

  // Finds one folder or list of images. A refusal names every path that was
  // tried.
  fs::path source(const yaml::YamlValue& value, const std::string& key) const {
    const std::string text = yaml::as_text(value, key);
    std::vector<fs::path> tried;
    for (const fs::path written : spellings_of(text)) {
      for (const fs::path& base : bases_) {
        add_once(tried, base / written);
        // Roboflow writes ../train/images for a folder beside the yaml.
        if (written.begin() != written.end() && *written.begin() == "..") {
          add_once(tried, base / written.lexically_relative(".."));
        }
      }
    }
    const auto found = std::find_if(tried.begin(), tried.end(), is_there);
    if (found == tried.end()) {
      const std::string remedy = path_remedy(text);
      throw Error(
          "data",
          yaml::to_string(value.place) + ": " + key + ": " + text +
              ": there is no " + list_paths(tried),
          remedy.empty() ? "put the images there or correct the path" : remedy);
    }
    std::error_code error;
    if (!fs::is_directory(*found, error) && found->extension() != ".txt" &&
        found->extension() != ".json" && found->extension() != ".geojson" &&
        found->extension() != ".csv" && found->extension() != ".index") {
      throw Error("data",
                  yaml::to_string(value.place) + ": " + key + ": " +
                      found->string() +
                      " is neither a folder nor a .txt list of images nor a "
                      "COCO .json nor a .geojson nor a .csv nor an .index of "
                      "packs",
                  "name a folder, a .txt list, a .json, a .geojson, a .csv or "
                  "an .index");
    }
    return *found;
  }

  fs::path folder_;
  std::vector<fs::path> bases_;
  const yaml::YamlValue& root_;
};

std::vector<std::string> names_of_list(const yaml::YamlValue& names) {
  std::vector<std::string> result;
  for (const yaml::YamlValue& item : names.items) {
    result.push_back(yaml::as_text(item, "a name"));
  }
  return result;
}

std::vector<std::string> names_of_mapping(const yaml::YamlValue& names) {
  std::map<int64_t, const yaml::YamlEntry*> by_index;
  for (const yaml::YamlEntry& entry : names.entries) {
    const auto index = yaml::parse_int64(entry.key);
    if (!index || *index < 0 || *index >= kMostClasses) {
      yaml::refuse(entry.key_place, "'" + entry.key + "' is not a class index",
                   "number the classes 0, 1, 2, ...");
    }
    const auto [first, is_new] = by_index.emplace(*index, &entry);
    if (!is_new) {
      yaml::refuse(entry.key_place,
                   cat("class ", *index,
                       " is named twice, first in "
                       "line ",
                       first->second->key_place.line),
                   "keep one of the two");
    }
  }
  std::vector<std::string> result;
  for (const auto& [index, entry] : by_index) {
    const auto expected = static_cast<int64_t>(result.size());
    if (index != expected) {
      yaml::refuse(
          entry->key_place,
          cat("class ", index, " is named, but class ", expected, " is not"),
          "number the classes 0, 1, 2, ... without a gap");
    }
    result.push_back(yaml::as_text(entry->value, "a name"));
  }
  return result;
}

std::vector<std::string> read_names(const yaml::YamlValue& root) {
  const yaml::YamlValue& names = yaml::require(root, "names");
  std::vector<std::string> result;
  if (names.kind == yaml::YamlValue::Kind::kSequence) {
    result = names_of_list(names);
  } else if (names.kind == yaml::YamlValue::Kind::kMapping) {
    result = names_of_mapping(names);
  } else {
    yaml::refuse(names.place, "names is " + yaml::describe(names),
                 "write a list [car, bus] or a mapping {0: car, 1: bus}");
  }
  if (result.empty()) {
    yaml::refuse(names.place, "names is empty", "name at least one class");
  }
  if (static_cast<int64_t>(result.size()) > kMostClasses) {
    yaml::refuse(names.place,
                 cat(result.size(), " classes, more than ", kMostClasses),
                 "name fewer");
  }
  if (const yaml::YamlValue* nc = root.find("nc")) {
    if (yaml::as_int64(*nc, "nc") != static_cast<int64_t>(result.size())) {
      yaml::refuse(nc->place,
                   "nc is " + nc->scalar + ", but names has " +
                       counted(static_cast<int64_t>(result.size()), "class"),
                   "make them agree, or remove nc");
    }
  }
  return result;
}

// Sets the splits from a Pascal VOC folder if none are given.
void read_voc_splits(const fs::path& folder, DataConfig& config) {
  const fs::path lists = folder / "ImageSets" / "Main";
  const auto list = [&](const char* name) -> std::vector<fs::path> {
    const fs::path file = (lists / name).lexically_normal();
    return is_there(file) ? std::vector{file} : std::vector<fs::path>{};
  };
  config.train = list("train.txt");
  config.val = list("val.txt");
  config.test = list("test.txt");
  if (config.train.empty() && is_there(lists / "default.txt")) {
    throw Error("data",
                lists.string() +
                    " has default.txt but no train.txt, as CVAT "
                    "exports it",
                "copy default.txt to train.txt and val.txt, or divide its "
                "lines between them");
  }
  if (config.train.empty() || config.val.empty()) {
    throw Error("data",
                lists.string() + " has no " +
                    (config.train.empty() ? "train.txt" : "val.txt"),
                "write the names of its images there, one a line, without "
                "suffix");
  }
}

// Reads a folder without data.yaml: its classes are those of the annotations.
DataConfig load_voc_folder(const fs::path& folder) {
  DataConfig config;
  config.file = folder;
  read_voc_splits(folder, config);
  config.names = voc_class_names(folder);
  check_class_names(config.names, folder / "Annotations");
  if (config.names.empty()) {
    throw Error("data", (folder / "Annotations").string() + " names no object",
                "put annotations there, NAME.xml for each image",
                ExitCode::kData);
  }
  return config;
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

void require_split(const yaml::YamlValue& root, const std::string& key) {
  const yaml::YamlValue& value = yaml::require(root, key);
  if (value.kind == yaml::YamlValue::Kind::kNull) {
    yaml::refuse(value.place, key + " is empty",
                 "name a folder or a .txt list");
  }
}

// A key that is nearly a known key is refused as a typing error. Other keys, of
// other programs, are ignored and returned as notes.
std::vector<std::string> notes_on_unknown_keys(const yaml::YamlValue& root) {
  std::vector<std::string> notes, known = known_keys();
  for (const yaml::YamlEntry& entry : root.entries) {
    const bool is_known =
        std::find(known.begin(), known.end(), entry.key) != known.end();
    if (is_known || !yaml::nearest_name(entry.key, known_keys()).empty()) {
      continue;
    }
    notes.push_back(yaml::to_string(entry.key_place) + ": the key '" +
                    short_line(entry.key, 200) + "' is not used");
    known.push_back(entry.key);
  }
  yaml::require_mapping(root, "a data file", known);
  return notes;
}

void require_colour(const yaml::YamlValue& root) {
  const yaml::YamlValue* channels = root.find("channels");
  if (channels == nullptr || yaml::as_int64(*channels, "channels") == 3) return;
  yaml::refuse(channels->place, "channels is " + channels->scalar,
               "this version reads colour images, 3 channels, only");
}

}  // namespace

DataConfig load_data_config(const std::filesystem::path& given) {
  std::filesystem::path file = given;
  if (is_folder(given)) {
    const bool is_voc = is_voc_folder(given);
    file = given / "data.yaml";
    if (!is_there(file) && is_voc) return load_voc_folder(given);
    if (!is_there(file)) {
      throw Error("data",
                  given.string() +
                      " is a folder without data.yaml, and no Pascal VOC "
                      "folder (Annotations and ImageSets/Main)",
                  "name a data.yaml");
    }
  }
  if (!is_there(file)) {
    throw Error("data", "there is no file " + file.string(),
                "check the path; data sets such as YOLOv5's coco128 are not "
                "downloaded: describe your copy in a file as "
                "configs/data/own_images.yaml");
  }
  const std::string suffix = file.extension().string();
  if (suffix == ".csv" || suffix == ".json" || suffix == ".geojson" ||
      suffix == ".txt" || suffix == ".xml") {
    throw Error("data", file.string() + " is no data.yaml",
                "write one that names it: train: " + file.filename().string() +
                    ", val: ..., names: [...] (configs/data/own_images.yaml "
                    "explains its lines)");
  }
  if (suffix == ".data" || suffix == ".names") {
    throw Error("data", file.string() + " has the form of darknet",
                "write a data.yaml: train: train.txt, val: valid.txt, names: "
                "[the lines of its .names]");
  }
  const std::string text = yaml::read_config_file(file, "data");
  const yaml::YamlValue root = yaml::parse_yaml(text, file.string());

  DataConfig config;
  config.file = file;
  config.notes = notes_on_unknown_keys(root);
  config.has_keypoints = root.find("kpt_shape") != nullptr;
  config.range = range_wish_of(root);
  if (root.find("train") == nullptr && root.find("val") == nullptr) {
    if (const auto voc = Reader(file, root).voc_folder()) {
      config.names = root.find("names") != nullptr ? read_names(root)
                                                   : voc_class_names(*voc);
      check_class_names(config.names, file);
      read_voc_splits(*voc, config);
      return config;
    }
  }
  for (const char* key : {"train", "val"}) require_split(root, key);
  require_colour(root);
  config.names = read_names(root);
  check_class_names(config.names, file);
  const Reader reader(file, root);
  config.train = reader.split("train");
  config.val = reader.split("val");
  config.train_images = reader.images("train");
  config.val_images = reader.images("val");
  try {
    config.test = reader.split("test");
    config.test_images = reader.images("test");
  } catch (const Error& error) {
    // Published data sets name test images that few people have, so a missing
    // test split fails only a run that uses it.
    config.test_split_error = error.what();
  }
  return config;
}

}  // namespace headroom::configs
