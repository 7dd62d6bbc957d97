#include "worker/data/labels/file_list.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "configs/yaml/line_reader.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/known_formats.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kDecodedSuffixes{
    ".bmp", ".jfif", ".jpe", ".jpeg", ".jpg",  ".jfi",
    ".mpo", ".png",  ".svs", ".tif",  ".tiff", ".webp"};
constexpr std::array<std::string_view, 13> kOtherSuffixes{
    ".dng", ".pfm", ".gif", ".heic", ".heif", ".avif", ".jp2",
    ".dcm", ".jxl", ".tga", ".ppm",  ".pgm",  ".exr"};
// Suffixes of labels and other files that are often stored beside images. These
// files are not examined.
constexpr std::array<std::string_view, 11> kForeignSuffixes{
    ".txt", ".xml", ".json",  ".geojson", ".csv", ".yaml",
    ".yml", ".md",  ".cache", ".npy",     ".zip"};

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
    } else if (codecs::names_page(absolute.native()) &&
               image_exists(absolute)) {
      files_.push_back(absolute.string());
    } else if (!fs::is_regular_file(absolute, error)) {
      refuse_source(absolute, fs::exists(absolute, error)
                                  ? "it is neither a file nor a folder"
                                  : "it does not exist");
    } else if (lower_suffix(absolute.native()) == ".txt") {
      add_list(absolute);
    } else {
      files_.push_back(absolute.string());
    }
  }

  std::vector<std::string> take() {
    if (hidden_ > 0) {
      report_.notes.push_back(
          report_.split + ": " +
          cat(hidden_, hidden_ == 1 ? " hidden copy" : " hidden copies",
              " of other programs skipped, first ", first_hidden_));
    }
    // The files of one folder are already sorted; files of lists or of several
    // sources may not be.
    if (!std::ranges::is_sorted(files_, path_precedes)) {
      std::ranges::sort(files_, path_precedes);
    }
    std::vector<std::string> unique;
    unique.reserve(files_.size());
    for (std::string& file : files_) {
      if (!unique.empty() && unique.back() == file) {
        report_.add({DataFaultKind::kListedTwice, file, "", "used once"});
      } else {
        unique.push_back(std::move(file));
      }
    }
    return unique;
  }

 private:
  void add_directory(const fs::path& directory) {
    // Links may lead back to a parent, so each directory is entered only once.
    struct stat status {};
    if (::stat(directory.c_str(), &status) != 0 ||
        !entered_.insert({status.st_dev, status.st_ino}).second) {
      return;
    }
    const auto refuse = [&directory](int error) {
      refuse_source(directory, std::generic_category().message(error));
    };
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()),
                                                   &::closedir);
    if (!open) refuse(errno);
    std::vector<std::pair<std::string, unsigned char>> entries;
    errno = 0;
    while (const dirent* entry = ::readdir(open.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..")
        entries.emplace_back(name, entry->d_type);
      errno = 0;
    }
    if (errno != 0) refuse(errno);
    // A subfolder's files are placed where the subfolder's name is in the
    // order, as path_precedes() requires.
    std::ranges::sort(entries);
    const std::string inside = (directory / "").string();
    for (const auto& [name, type] : entries) {
      if (is_hidden_copy(name)) {
        skip(inside + name);
      } else {
        add_entry(inside + name, type);
      }
    }
  }

  // Counts the images that are skipped.
  void skip(const std::string& path) {
    std::error_code error;
    int64_t images = is_image_name(path) && fs::is_regular_file(path, error);
    fs::recursive_directory_iterator entry(path, error);
    for (; !error && entry != fs::recursive_directory_iterator();
         entry.increment(error)) {
      std::error_code ignored;
      images += is_image_name(entry->path().native()) &&
                entry->is_regular_file(ignored);
    }
    if (hidden_ == 0 && images > 0) first_hidden_ = path;
    hidden_ += images;
  }

  void add_entry(std::string path, unsigned char type) {
    std::error_code ignored;  // is_directory() is false for a dangling link
    const bool may_lead_on = type == DT_LNK || type == DT_UNKNOWN;
    if (type == DT_DIR || (may_lead_on && fs::is_directory(path, ignored))) {
      add_directory(path);
    } else {
      add_file(std::move(path));
    }
  }

  void add_file(std::string file) {
    const std::string suffix = lower_suffix(file);
    if (contains(kDecodedSuffixes, suffix)) {
      files_.push_back(std::move(file));
    } else if (contains(kOtherSuffixes, suffix)) {
      report_.add(
          {DataFaultKind::kUnsupportedImage, file, suffix, "image left out"});
    } else if (!contains(kForeignSuffixes, suffix)) {
      const ForeignKind kind = foreign_kind(file_head(file));
      if (!is_image(kind)) return;
      report_.add(
          {DataFaultKind::kUnsupportedImage, file,
           to_string(kind) + (suffix.empty() ? " whose name has no suffix"
                                             : ", but its suffix is " + suffix),
           "image left out: give it the suffix of its format"});
    }
  }

  void add_list(const fs::path& list) {
    std::ifstream stream(list, std::ios::binary);
    if (!stream) refuse_source(list, "it cannot be opened");
    const std::string kind = to_string(foreign_kind(file_head(list)));
    if (!kind.empty()) {
      throw Error("data",
                  list.string() + " is " + kind + ", not a list of images",
                  "write the path of an image into each line", ExitCode::kData);
    }
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    refuse_known_format(list.string(), text);
    LineReader lines(text);
    while (lines.next()) {
      const std::string line(unquoted(lines.line()));
      if (line.empty()) continue;
      if (line.front() == '#' && !image_exists(in_list(list, line))) continue;
      files_.push_back(
          listed(list, line, cat(list.string(), ":", lines.number())));
    }
  }

  // The path of a line. "./x" is always relative to the list. Other relative
  // paths are looked for beside the list first, then in the working directory.
  static fs::path in_list(const fs::path& list, const fs::path& file) {
    if (!file.is_relative()) return file;
    const fs::path beside = list.parent_path() / file;
    const bool in_list_folder =
        file.native().starts_with("./") || image_exists(beside);
    return in_list_folder ? beside : fs::absolute(file);
  }

  // The image of a line, in the spellings of several programs.
  static std::string listed(const fs::path& list, const std::string& line,
                            const std::string& where) {
    const fs::path as_written = in_list(list, line);
    constexpr std::string_view kData = "data/";
    const bool is_plain = line.find_first_of("\\ \t:") == std::string::npos &&
                          !line.starts_with(kData);
    if (is_plain || image_exists(as_written)) {
      return as_written.lexically_normal().string();
    }
    const bool has_drive = line.size() > 2 && line[1] == ':' &&
                           std::isalpha(static_cast<unsigned char>(line[0])) &&
                           (line[2] == '\\' || line[2] == '/');
    if (has_drive) {
      throw Error("data",
                  where + ": " + line +
                      " begins with a drive of Windows, "
                      "which is not here",
                  "write paths relative to the list", ExitCode::kData);
    }
    std::string slashes = line;
    std::ranges::replace(slashes, '\\', '/');
    std::vector<std::string> spellings = {slashes};
    // Paths in darknet's lists are relative to the folder above the folder of
    // the list.
    if (slashes.starts_with(kData)) {
      spellings.push_back("./" + slashes.substr(kData.size()));
    }
    // The line may consist of an image and its label file.
    const std::vector<std::string_view> words = words_of(slashes);
    if (words.size() == 2) {
      const fs::path image = in_list(list, fs::path(words[0]));
      if (image_exists(image)) {
        const auto labels = label_paths(image.lexically_normal().string());
        const std::string named =
            in_list(list, fs::path(words[1])).lexically_normal().string();
        if (std::ranges::find(labels, named) == labels.end()) {
          throw Error("data",
                      where + ": pairs an image with " + named +
                          ", but its labels are looked for in " + labels[0],
                      "name only images, and put their labels there",
                      ExitCode::kData);
        }
        spellings.emplace_back(words[0]);
      }
    }
    for (const std::string& spelling : spellings) {
      const fs::path file = in_list(list, spelling);
      if (image_exists(file)) return file.lexically_normal().string();
    }
    return as_written.lexically_normal().string();
  }

  DataReport& report_;
  std::vector<std::string> files_;
  std::set<std::pair<dev_t, ino_t>> entered_;
  int64_t hidden_ = 0;
  std::string first_hidden_;
};

// The position at which a path's suffix begins: ".jpg" in "a/b.jpg". Returns
// the end of the path if it has no suffix.
size_t suffix_begin(std::string_view file) {
  const size_t slash = file.rfind('/');
  const size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = file.rfind('.');
  return dot == std::string_view::npos || dot <= name ? file.size() : dot;
}

}  // namespace

bool path_precedes(std::string_view a, std::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  size_t at = 0;
  // Neighbouring paths have long common beginnings, so compare in large steps.
  constexpr size_t kStep = 16;
  while (at + kStep <= length &&
         std::memcmp(a.data() + at, b.data() + at, kStep) == 0) {
    at += kStep;
  }
  while (at < length && a[at] == b[at]) ++at;
  if (at == length) return a.size() < b.size();
  if (a[at] == '/' || b[at] == '/') return a[at] == '/';
  return static_cast<unsigned char>(a[at]) < static_cast<unsigned char>(b[at]);
}

bool is_image_name(std::string_view file) {
  return contains(kDecodedSuffixes, lower_suffix(file));
}

bool is_hidden_copy(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{
      "@eaDir",   ".ipynb_checkpoints", "__MACOSX", "Thumbs.db",
      "#recycle", ".AppleDouble",       ".Trashes", ".DS_Store"};
  return name.starts_with("._") ||
         std::ranges::find(kNames, name) != kNames.end();
}

std::string lower_suffix(std::string_view file) {
  std::string suffix(file.substr(suffix_begin(file)));
  for (char& c : suffix) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return suffix;
}

std::string with_suffix(std::string_view file, std::string_view suffix) {
  std::string result(file.substr(0, suffix_begin(file)));
  if (codecs::names_page(file)) result += file.substr(file.rfind('#'));
  return result.append(suffix);
}

void refuse_page(const fs::path& image, const std::string& tag) {
  if (!codecs::names_page(image.native()) || file_exists(image.string()))
    return;
  throw Error(tag, image.string() + " is a page, and whole files are copied",
              "write the pages as files, for example with tiffsplit");
}

bool image_exists(const fs::path& image) {
  return file_exists(image.string()) ||
         file_exists(codecs::image_page(image).file);
}

std::string unique_stem(const fs::path& file, std::set<std::string>& taken) {
  const std::string stem = file.stem().string();
  std::string unique = stem;
  for (int i = 2; !taken.insert(unique).second; ++i) {
    unique = stem + "_" + std::to_string(i);
  }
  return unique;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()),
                                                 &::closedir);
  if (!open) return names;
  while (const dirent* entry = ::readdir(open.get())) {
    names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

bool file_exists(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0;
}

std::string first_existing(const std::vector<std::string>& files) {
  const auto found = std::ranges::find_if(files, file_exists);
  return found == files.end() ? files.front() : *found;
}

std::vector<std::string> list_images(const std::vector<fs::path>& sources,
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

std::vector<std::string> label_paths(std::string_view image) {
  std::string beside = with_suffix(image, ".txt");
  constexpr std::string_view kImages = "/images/";
  const size_t at = beside.rfind(kImages);
  if (at == std::string::npos) return {beside};
  return {std::string(beside).replace(at, kImages.size(), "/labels/"), beside};
}

std::string label_path(std::string_view image) {
  return first_existing(label_paths(image));
}

}  // namespace headroom::labels
