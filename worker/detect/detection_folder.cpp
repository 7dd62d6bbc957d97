#include "worker/detect/detection_folder.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "worker/chart/jpeg_file.h"
#include "worker/chart/png_bytes.h"
#include "worker/model/atomic_file.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr int kQuality = 95;
constexpr int kLongestJpegSide = 65500;  // of libjpeg

// A class name as one part of a path.
std::string folder_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return c == '/' || c == '\\' || c < ' '; }, '_');
  return name.empty() || name == "." || name == ".." ? "_" : name;
}

cv::Rect pixels_of(const Corners& box, const cv::Mat& picture) {
  const cv::Rect whole(0, 0, picture.cols, picture.rows);
  const cv::Point first(static_cast<int>(std::floor(box.x1)),
                        static_cast<int>(std::floor(box.y1)));
  const cv::Point last(static_cast<int>(std::ceil(box.x2)),
                       static_cast<int>(std::ceil(box.y2)));
  return cv::Rect(first, last) & whole;
}

[[noreturn]] void refuse_to_make(const fs::path& folder,
                                 const std::error_code& why) {
  throw Error("detect",
              folder.string() + " cannot be made (" + why.message() + ")",
              "choose another place: --project DIR", ExitCode::kResource);
}

}  // namespace

DetectionFolder::DetectionFolder(fs::path folder,
                                 std::vector<std::string> class_names,
                                 FolderOptions options)
    : folder_(std::move(folder)),
      class_names_(std::move(class_names)),
      options_(std::move(options)),
      csv_(csv_header()) {}

std::string DetectionFolder::name_of(const fs::path& image) {
  const std::string stem = image.stem().string();
  std::string name = stem;
  while (!names_.emplace(name, 1).second) {
    name = stem + "_" + std::to_string(++names_[stem]);
  }
  return name;
}

void DetectionFolder::write(const fs::path& place, const std::string& bytes) {
  if (path_.empty()) make_folder();
  const fs::path path = path_ / place;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) refuse_to_make(path.parent_path(), error);
  write_whole_file(path, bytes);
}

void DetectionFolder::make_folder() {
  try {
    if (options_.may_exist) fs::create_directories(folder_);
    path_ = options_.may_exist ? folder_ : make_free_folder(folder_);
  } catch (const fs::filesystem_error& error) {
    refuse_to_make(folder_, error.code());
  }
}

void DetectionFolder::write_picture(const fs::path& stem,
                                    const cv::Mat& pixels) {
  const bool fits = std::max(pixels.rows, pixels.cols) <= kLongestJpegSide;
  write(stem.string() + (fits ? ".jpg" : ".png"),
        fits ? encode_jpeg(pixels, kQuality) : encode_png_bytes(pixels));
}

void DetectionFolder::write_crops(const ImageDetections& found,
                                  const cv::Mat& pixels,
                                  const std::string& name) {
  for (size_t i = 0; i < found.detections.size(); ++i) {
    const Detection& one = found.detections[i];
    const cv::Rect place = pixels_of(one.box, pixels);
    if (place.empty()) continue;
    write_picture(
        fs::path("crops") /
            folder_name(class_names_.at(static_cast<size_t>(one.class_index))) /
            (name + "_" + std::to_string(i + 1)),
        pixels(place).clone());
  }
}

void DetectionFolder::add(ImageDetections found, cv::Mat& pixels) {
  const std::string name = name_of(found.image);
  if (options_.crops) write_crops(found, pixels, name);
  if (options_.text) {
    const fs::path place = fs::path("labels") / (name + ".txt");
    if (!found.detections.empty()) {
      write(place, yolo_text(found, options_.confidences_in_text));
    } else {
      std::error_code ignored;  // of an earlier run, with --exist-ok
      fs::remove(folder_ / place, ignored);
    }
  }
  if (options_.csv) csv_ += csv_lines(found, class_names_);
  if (options_.pictures) {
    annotate(pixels, found.detections, class_names_, options_.annotate);
    write_picture(name, pixels);
  }
  if (options_.json) all_.push_back(std::move(found));
}

void DetectionFolder::finish() {
  if (options_.csv) write("predictions.csv", csv_);
  if (options_.json) {
    write("predictions.json", coco_json(all_, options_.coco_ids));
  }
}

}  // namespace headroom
