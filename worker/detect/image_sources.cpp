#include "worker/detect/image_sources.h"

#include <glob.h>

#include <algorithm>
#include <array>

#include "parallel/base/check.h"
#include "worker/data/data_report.h"
#include "worker/data/file_list.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr std::array kVideos = {".asf", ".avi", ".gif", ".m4v",
                                ".mkv", ".mov", ".mp4", ".mpeg",
                                ".mpg", ".ts",  ".wmv", ".webm"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error("detect", what, remedy, ExitCode::kData);
}

bool is_video(const fs::path& file) {
  return std::find(kVideos.begin(), kVideos.end(), lower_suffix(file)) !=
         kVideos.end();
}

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

}  // namespace

ImageSources find_images(const std::string& source) {
  if (source.find("://") != std::string::npos) {
    refuse(source + " is an address, and nothing is fetched here",
           "download it and name the file");
  }
  std::vector<fs::path> given = {source};
  std::error_code ignored;
  if (!fs::exists(source, ignored)) given = files_of_pattern(source);
  if (given.empty()) {
    refuse("there is nothing at " + source,
           "name an image, a folder, a pattern such as 'scenes/*.jpg', or a "
           ".txt list of images");
  }
  const bool is_one = given.size() == 1 && !fs::is_directory(given[0], ignored);
  ImageSources sources;
  std::vector<fs::path> wanted;
  for (const fs::path& file : given) {
    if (!is_video(file)) {
      wanted.push_back(file);
    } else if (is_one) {
      refuse(
          file.string() + " is a video or an animation, which is not decoded",
          "take its frames first, for example ffmpeg -i " + file.string() +
              " frames/%06d.jpg");
    } else {
      sources.left_out.push_back(file.string() + ": a video");
    }
  }
  DataReport report;
  sources.images = list_images(wanted, report);
  for (const DataFault& fault : report.faults) {
    sources.left_out.push_back(to_string(fault));
  }
  if (sources.images.empty()) {
    refuse(source + " holds no image that can be decoded",
           "JPEG, PNG, BMP, TIFF and WebP are");
  }
  return sources;
}

}  // namespace headroom
