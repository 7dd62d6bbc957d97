#include "worker/data/labels/file_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kDecodedSuffixes{
    ".bmp", ".jfif", ".jpe", ".jpeg", ".jpg",  ".jfi",
    ".mpo", ".png",  ".svs", ".tif",  ".tiff", ".webp"};
constexpr std::array<std::string_view, 13> kOtherSuffixes{
    ".dng", ".pfm", ".gif", ".heic", ".heif", ".avif", ".jp2",
    ".dcm", ".jxl", ".tga", ".ppm",  ".pgm",  ".exr"};
// Labels and what else lies beside images: not looked into.
constexpr std::array<std::string_view, 10> kForeignSuffixes{
    ".txt", ".xml", ".json",  ".csv", ".yaml",
    ".yml", ".md",  ".cache", ".npy", ".zip"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& suffixes,
              const std::string& suffix) {
  return std::find(suffixes.begin(), suffixes.end(), suffix) != suffixes.end();
}

[[noreturn]] void refuse_source(const fs::path& source,
                                const std::string& why) {
  throw Error("data", source.string() + " cannot be read (" + why + ")",
              "correct the path in the data file, or its permissions",
              ExitCode::kData);
}

class Lister {
 public:
  explicit Lister(DataReport& report) : report_(report) {}

  void add_source(const fs::path& source) {
    std::error_code error;
    const fs::path absolute = fs::absolute(source).lexically_normal();
    if (fs::is_directory(absolute, error)) {
      add_directory(absolute);
    } else if (!fs::is_regular_file(absolute, error)) {
      refuse_source(absolute, fs::exists(absolute, error)
                                  ? "it is neither a file nor a folder"
                                  : "it does not exist");
    } else if (lower_suffix(absolute) == ".txt") {
      add_list(absolute);
    } else {
      files_.push_back(absolute);
    }
  }

  std::vector<fs::path> take() {
    std::sort(files_.begin(), files_.end());
    std::vector<fs::path> unique;
    for (fs::path& file : files_) {
      if (!unique.empty() && unique.back() == file) {
        report_.add(
            {DataFaultKind::kListedTwice, file.string(), "", "used once"});
      } else {
        unique.push_back(std::move(file));
      }
    }
    return unique;
  }

 private:
  void add_directory(const fs::path& directory) {
    // Links may lead back up: a directory is entered once.
    struct stat status {};
    if (::stat(directory.c_str(), &status) != 0 ||
        !entered_.insert({status.st_dev, status.st_ino}).second) {
      return;
    }
    std::error_code error;
    fs::directory_iterator entry(directory, error);
    if (error) refuse_source(directory, error.message());
    for (; entry != fs::directory_iterator(); entry.increment(error)) {
      std::error_code ignored;  // a dangling link is no directory
      if (entry->is_directory(ignored)) {
        add_directory(entry->path());
      } else {
        add_file(entry->path());
      }
    }
    if (error) refuse_source(directory, error.message());
  }

  void add_file(const fs::path& file) {
    const std::string suffix = lower_suffix(file);
    if (contains(kDecodedSuffixes, suffix)) {
      files_.push_back(file);
    } else if (contains(kOtherSuffixes, suffix)) {
      report_.add({DataFaultKind::kUnsupportedImage, file.string(), suffix,
                   "image left out"});
    } else if (!contains(kForeignSuffixes, suffix)) {
      const ForeignKind kind = foreign_kind(file_head(file));
      if (!is_image(kind)) return;
      report_.add(
          {DataFaultKind::kUnsupportedImage, file.string(),
           to_string(kind) + (suffix.empty() ? " whose name has no suffix"
                                             : ", but its suffix is " + suffix),
           "image left out: give it the suffix of its format"});
    }
  }

  void add_list(const fs::path& list) {
    std::ifstream stream(list);
    if (!stream) refuse_source(list, "it cannot be opened");
    const std::string kind = to_string(foreign_kind(file_head(list)));
    if (!kind.empty()) {
      throw Error("data",
                  list.string() + " is " + kind + ", not a list of images",
                  "write the path of an image into each line", ExitCode::kData);
    }
    std::string line;
    while (std::getline(stream, line)) {
      while (!line.empty() &&
             std::isspace(static_cast<unsigned char>(line.back())) != 0) {
        line.pop_back();
      }
      if (line.empty()) continue;
      fs::path file(line);
      if (file.is_relative()) {
        // "./x" is relative to the list by definition; other relative paths
        // are where either the list or the working directory has them.
        const fs::path beside = list.parent_path() / file;
        std::error_code error;
        const bool in_list_folder =
            line.starts_with("./") || fs::exists(beside, error);
        file = in_list_folder ? beside : fs::absolute(file);
      }
      files_.push_back(file.lexically_normal());
    }
  }

  DataReport& report_;
  std::vector<fs::path> files_;
  std::set<std::pair<dev_t, ino_t>> entered_;
};

}  // namespace

std::string lower_suffix(const fs::path& file) {
  std::string suffix = file.extension().string();
  for (char& c : suffix) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return suffix;
}

std::vector<fs::path> list_images(const std::vector<fs::path>& sources,
                                  DataReport& report) {
  Lister lister(report);
  for (const fs::path& source : sources) lister.add_source(source);
  return lister.take();
}

bool stays_in_folder(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

fs::path label_path(const fs::path& image) {
  const fs::path beside = fs::path(image).replace_extension(".txt");
  constexpr std::string_view kImages = "/images/";
  std::string text = beside.string();
  const size_t at = text.rfind(kImages);
  if (at == std::string::npos) return beside;
  const fs::path mapped = text.replace(at, kImages.size(), "/labels/");
  std::error_code error;
  const bool only_beside =
      !fs::exists(mapped, error) && fs::exists(beside, error);
  return only_beside ? beside : mapped;
}

}  // namespace headroom::labels
