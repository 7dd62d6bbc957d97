// DetectionFolder: a run's results as files, each written whole or not at all.
//
//   NAME.jpg          the picture with its boxes; NAME.png where a side is too
//                     long for JPEG
//   labels/NAME.txt   YOLO txt of pictures in which something was found
//   crops/CLASS/NAME_3.jpg
//   predictions.csv, predictions.json   by finish()
//
// NAME is the image's stem; where two images have the same, the second is
// STEM_2. The folder is made with the first file, under a name that nobody
// else has (numbered_folder.h).
//
// Threads: one. Errors: Error (exit 5) of a full disk and the like.
#pragma once

#include <filesystem>
#include <map>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "worker/detect/annotate.h"
#include "worker/detect/detection_files.h"

namespace headroom {

struct FolderOptions {
  bool pictures = true;
  bool text = false;
  bool confidences_in_text = false;
  bool csv = false;
  bool json = false;
  CocoIds coco_ids;  // of the JSON
  bool crops = false;
  bool may_exist = false;  // the folder: then it keeps its name
  AnnotateOptions annotate;
};

class DetectionFolder {
 public:
  DetectionFolder(std::filesystem::path folder,
                  std::vector<std::string> class_names, FolderOptions options);

  // `pixels` may be drawn into.
  void add(ImageDetections found, cv::Mat& pixels);
  void finish();
  // "": nothing has been written.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string name_of(const std::filesystem::path& image);
  void write(const std::filesystem::path& place, const std::string& bytes);
  void write_picture(const std::filesystem::path& stem, const cv::Mat& pixels);
  void write_crops(const ImageDetections& found, const cv::Mat& pixels,
                   const std::string& name);

  void make_folder();

  const std::filesystem::path folder_;
  const std::vector<std::string> class_names_;
  const FolderOptions options_;
  std::filesystem::path path_;
  std::map<std::string, int> names_;
  std::string csv_;
  std::vector<ImageDetections> all_;  // where JSON is wanted
};

}  // namespace headroom
