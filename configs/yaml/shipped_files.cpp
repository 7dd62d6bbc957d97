#include "configs/yaml/shipped_files.h"

#include <algorithm>
#include <filesystem>

#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"

namespace headroom::yaml {

std::vector<std::string> shipped_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const ShippedFile& file : shipped_files()) {
    if (!file.path.starts_with(folder + "/")) continue;
    names.push_back(std::filesystem::path(file.path).stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string shipped_text(const std::string& path) {
  const auto file =
      std::ranges::find(shipped_files(), path, &ShippedFile::path);
  HEADROOM_CHECK(file != shipped_files().end(), "no shipped " + path);
  return std::string(file->content);
}

NamedText file_or_shipped(const std::string& name_or_path,
                          const std::string& folder, const std::string& tag,
                          const std::string& as_given) {
  std::error_code error;
  if (std::filesystem::is_regular_file(name_or_path, error)) {
    return {name_or_path, read_config_file(name_or_path, tag)};
  }
  std::string name = name_or_path;
  if (name.ends_with(".yaml")) name.resize(name.size() - 5);
  for (const ShippedFile& file : shipped_files()) {
    if (file.path == folder + "/" + name + ".yaml") {
      return {name + ".yaml", std::string(file.content)};
    }
  }
  const std::vector<std::string> known = shipped_names(folder);
  std::string all;
  for (const std::string& each : known) all += " " + each;
  throw Error(
      tag,
      "there is no file " + (as_given.empty() ? name_or_path : as_given) +
          ", nor a shipped " + folder + " file of that name",
      suggestion(std::filesystem::path(name).filename().string(), known,
                 "give a path or one of") +
          (nearest_name(std::filesystem::path(name).filename().string(), known)
                   .empty()
               ? all
               : " There are:" + all));
}

}  // namespace headroom::yaml
