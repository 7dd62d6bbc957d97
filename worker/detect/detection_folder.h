// DetectionFolder: a run's results as files, each written whole or not at all.
//
//   NAME.jpg          the picture with its boxes; NAME.png where a side is too
//                     long for JPEG; an image that is too large to be held is
//                     drawn smaller
//   labels/NAME.txt   YOLO txt of pictures in which something was found
//   crops/CLASS/NAME_3.jpg
//   predictions.csv, predictions.json   complete with finish()
//   NAME.mp4          a video with the boxes of its pictures, whose other files
//                     are those of images called NAME_1, NAME_2, …
//
// NAME is the file's stem; where two have the same, the second is STEM_2.
// Memory does not grow with their number. The folder is made with the first
// file, under a name that nobody else has (numbered_folder.h).
//
// Errors: Error (exit 5) where a file cannot be written, as on a full disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "worker/data/codecs/image.h"
#include "worker/metrics/detection.h"

namespace headroom::detect {

// Boxes with their names and confidences, drawn into a picture for people.

struct AnnotateOptions {
  int line_width = 0;  // pixels; 0: by the picture's size
  bool labels = true;
  bool confidences = true;
};

// pixels: CV_8UC3, RGB.
void annotate(cv::Mat& pixels,
              const std::vector<metrics::Detection>& detections,
              const std::vector<std::string>& class_names,
              const AnnotateOptions& options);

// What was found in an image. It is written in the forms other programs read:
//
//   YOLO txt   per image: class cx cy w h [confidence], fractions of the image
//   CSV        image,class,name,confidence,x1,y1,x2,y2 (pixels)
//   COCO JSON  [{image_id, category_id, bbox [x, y, w, h], score}]: ids of
//              annotations where there are some, else image_id is the file's
//              stem, a number where it is one, and category_id as in
//              usual_categories
struct ImageDetections {
  std::filesystem::path image;
  int64_t height = 0, width = 0;
  std::vector<metrics::Detection> detections;  // boxes in its pixels
};

std::string yolo_text(const ImageDetections& found, bool with_confidence);

std::string csv_header();
std::string csv_lines(const ImageDetections& found,
                      const std::vector<std::string>& class_names);

// The ids of the annotations that the images come from.
struct CocoIds {
  std::map<std::string, int64_t> images;  // the id of each path
  std::vector<int64_t> categories;        // the id of each class
};
// The category ids of classes that no annotations number, as YOLOv5 has them:
// those of COCO's own files, 1 to 90 with gaps, for COCO's 80 names, else the
// classes' numbers.
std::vector<int64_t> usual_categories(
    const std::vector<std::string>& class_names);

// One image's records as coco_json has them between its brackets:
// "\n{...},\n{...}".
// REQUIRES: ids.categories has every class.
std::string coco_records(const ImageDetections& found, const CocoIds& ids);
std::string coco_json(const std::vector<ImageDetections>& all,
                      const CocoIds& ids);

// "2 RBC, 1 WBC"; "nothing".
std::string counts_text(const ImageDetections& found,
                        const std::vector<std::string>& class_names);

struct FolderOptions {
  bool pictures = true;
  bool text = false;
  bool confidences_in_text = false;
  bool csv = false;
  bool json = false;
  CocoIds coco_ids;  // the JSON's ids; without categories usual_categories
  bool crops = false;
  bool may_exist = false;  // the folder: then it keeps its name
  AnnotateOptions annotate;
};

// How far the picture or the crops of a large image are.
struct LargeProgress {
  const char* step;  // "drawn"
  int64_t done = 0, of = 0;
  const char* noun;  // "line"
};
// False ends the work.
using GoOn = std::function<bool(const LargeProgress&)>;

class DetectionFolder {
 public:
  DetectionFolder(std::filesystem::path folder,
                  std::vector<std::string> class_names, FolderOptions options);

  // Goes on in a folder that an unfinished run made. REQUIRES: nothing has been
  // written.
  void go_on_in(std::filesystem::path folder) { path_ = std::move(folder); }

  // `pixels` may be drawn into.
  void add(const ImageDetections& found, cv::Mat& pixels);
  // The same of an image that is too large to be held: its picture is made
  // smaller, with boxes alone, and its crops are read from its file. If it is
  // ended, the image is in no table, and the answer is false.
  bool add_large(const ImageDetections& found,
                 const codecs::ImageLimits& limits, const GoOn& go_on);
  // The same of an image, or of a video's picture, whose own files an
  // unfinished run wrote: it stands in the tables.
  void add_known(const ImageDetections& found);
  void add_known_picture(const std::string& name, int64_t number,
                         ImageDetections found);

  // A name for a video, after all images. Then, for each of its pictures, what
  // was found in it; `found.image` becomes NAME_number, and `pixels` gets its
  // boxes where pictures are wanted.
  std::string begin_video(const std::filesystem::path& video);
  void add_picture(const std::string& name, int64_t number,
                   ImageDetections found, cv::Mat& pixels);
  // The place of a file in the folder, which is made if it is not there.
  std::filesystem::path place_of(const std::filesystem::path& file);
  bool has_pictures() const { return options_.pictures; }

  void finish();
  // Removes the folder where it holds nothing.
  void leave_if_empty();
  // "": nothing has been written.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string name_of(const std::filesystem::path& image);
  bool is_taken_by_a_picture(const std::string& name) const;
  void add_to_tables(const ImageDetections& found);
  void add_text(const ImageDetections& found, const std::string& name);
  // All but the picture itself.
  void add_found(const ImageDetections& found, const cv::Mat& pixels,
                 const std::string& name);
  void append(std::unique_ptr<AtomicFile>& file, const char* name,
              const std::string& text);
  void write(const std::filesystem::path& place, const std::string& bytes);
  void write_picture(const std::filesystem::path& stem, const cv::Mat& pixels);
  void write_crop(const ImageDetections& found, size_t number,
                  const std::string& name, const cv::Mat& pixels);
  void write_crops(const ImageDetections& found, const cv::Mat& pixels,
                   const std::string& name);
  bool cut_crops(const ImageDetections& found, const std::string& name,
                 const codecs::ImageLimits& limits, const GoOn& go_on);

  void make_folder();

  const std::filesystem::path folder_;
  const std::vector<std::string> class_names_;
  const FolderOptions options_;
  std::filesystem::path path_;
  std::map<std::string, int> names_;
  std::unique_ptr<AtomicFile> csv_, json_;  // open if they are wanted
  bool json_has_records_ = false;
};

}  // namespace headroom::detect
