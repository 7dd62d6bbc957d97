#include "worker/detect/image_sources.h"

#include <glob.h>

#include <algorithm>
#include <array>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/file_list.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;

constexpr std::array kVideos = {".asf", ".avi", ".gif", ".m4v",
                                ".mkv", ".mov", ".mp4", ".mpeg",
                                ".mpg", ".ts",  ".wmv", ".webm"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error("detect", what, remedy, ExitCode::kData);
}

constexpr std::array kPlaylists = {".m3u",  ".m3u8",     ".mpd",     ".pls",
                                   ".sdp",  ".ffconcat", ".streams", ".concat",
                                   ".xspf", ".asx",      ".smil",    ".ram"};

template <typename Suffixes>
bool is_one_of(const Suffixes& suffixes, const fs::path& file) {
  return std::ranges::find(suffixes, labels::lower_suffix(file.native())) !=
         suffixes.end();
}

bool is_video(const fs::path& file) { return is_one_of(kVideos, file); }

std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> files;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH) {
    refuse(pattern + " cannot be searched", "name a folder or a file");
  }
  return files;
}

// Refuses a file that only lists addresses of pictures or streams.
void refuse_lists_of_streams(const fs::path& file) {
  if (!is_one_of(kPlaylists, file)) return;
  refuse(file.string() +
             " is a playlist or a list of streams, and nothing is "
             "fetched here",
         "name the video's file");
}

void refuse_what_is_no_file(const std::string& source) {
  if (source.find("://") != std::string::npos) {
    refuse(source + " is an address, and nothing is fetched here",
           "download it and name the file");
  }
  std::error_code ignored;
  if (fs::exists(source, ignored)) return;
  const bool is_number =
      !source.empty() &&
      source.find_first_not_of("0123456789") == std::string::npos;
  if (is_number || source == "screen" || source.starts_with("screen ")) {
    refuse(source + " would be a " + (is_number ? "camera" : "screen") +
               ", and only files are looked at here",
           "record it first, and name the video");
  }
}

void add_videos_of(const fs::path& folder, std::vector<fs::path>& videos) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (is_video(entry->path()) && entry->is_regular_file(ignored)) {
      videos.push_back(entry->path());
    }
  }
}

}  // namespace

ImageSources find_images(const std::string& source) {
  refuse_what_is_no_file(source);
  std::vector<fs::path> given = {source};
  std::error_code ignored;
  if (!labels::image_exists(source)) given = files_of_pattern(source);
  if (given.empty()) {
    refuse("there is nothing at " + source,
           "name an image, a video, a folder, a pattern such as "
           "'scenes/*.jpg', or a .txt list of images");
  }
  ImageSources sources;
  std::vector<fs::path> wanted, videos;
  for (const fs::path& file : given) {
    refuse_lists_of_streams(file);
    const bool is_folder = fs::is_directory(file, ignored);
    if (is_folder) add_videos_of(file, videos);
    (is_video(file) && !is_folder ? videos : wanted).push_back(file);
  }
  labels::DataReport report;
  const std::vector<std::string> images = labels::list_images(wanted, report);
  sources.images.assign(images.begin(), images.end());
  for (const labels::DataFault& fault : report.faults) {
    if (!is_video(fault.where))
      sources.left_out.push_back(labels::to_string(fault));
  }
  for (const fs::path& video : videos) {
    sources.videos.push_back(fs::absolute(video).lexically_normal());
  }
  std::ranges::sort(sources.videos);
  const auto doubled = std::ranges::unique(sources.videos);
  sources.videos.erase(doubled.begin(), doubled.end());
  if (sources.images.empty() && sources.videos.empty()) {
    const auto others = static_cast<int64_t>(sources.left_out.size());
    refuse(
        source + " holds no image and no video that can be decoded" +
            (others == 0 ? ""
                         : ": " + counted(others, "file") +
                               " left out, first " + sources.left_out.front()),
        "JPEG, PNG, BMP, TIFF and WebP are, and videos such as MP4");
  }
  return sources;
}

void refuse_changed(const fs::path& file, const std::string& reason) {
  throw Error("detect", file.string() + " cannot be read again: " + reason,
              "put back the file that was looked at, and go on with --resume",
              ExitCode::kData);
}

}  // namespace headroom::detect
