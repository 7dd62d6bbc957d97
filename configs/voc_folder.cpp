#include "configs/voc_folder.h"

#include <pugixml.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "configs/yaml/line_reader.h"
#include "parallel/base/regular_file.h"

namespace headroom::configs {

namespace fs = std::filesystem;

namespace {

// Real files are much smaller: 0.5 MiB for an annotation of 1,000 objects.
constexpr uintmax_t kLargestAnnotation = uintmax_t{4} << 20;

}  // namespace

bool is_voc_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "Annotations", error) &&
         fs::is_directory(folder / "ImageSets" / "Main", error);
}

bool is_voc_split(const fs::path& file) {
  return file.extension() == ".txt" &&
         file.parent_path().filename() == "Main" &&
         file.parent_path().parent_path().filename() == "ImageSets" &&
         is_voc_folder(voc_folder_of(file));
}

fs::path voc_folder_of(const fs::path& split) {
  return split.parent_path().parent_path().parent_path();
}

std::vector<std::string> voc_class_names(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::path& file : entries_of(folder / "Annotations", error)) {
    std::error_code unreadable;
    const uintmax_t bytes = fs::file_size(file, unreadable);
    if (file.extension() != ".xml" || unreadable ||
        file.filename().native().starts_with("._") ||
        bytes > kLargestAnnotation) {
      continue;
    }
    pugi::xml_document document;
    if (!document.load_file(file.c_str())) continue;
    for (const pugi::xml_node object :
         document.child("annotation").children("object")) {
      const std::string_view name = trimmed(object.child("name").text().get());
      if (!name.empty()) names.emplace(name);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace headroom::configs
