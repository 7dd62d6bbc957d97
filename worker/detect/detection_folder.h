// DetectionFolder: writes the results of a run as files. Each file is complete
// or does not exist.
//
//   NAME.jpg          the picture with its boxes. NAME.png if it is too long
//                     for JPEG. An image too large for memory is drawn smaller
//   labels/NAME.txt   YOLO txt, for pictures with detections
//   crops/CLASS/NAME_3.jpg   the third detection, cut out of the picture
//   predictions.csv, predictions.json   appear in finish()
//   NAME.mp4          a video with boxes; the other files of its pictures are
//                     named like those of images NAME_1, NAME_2, …
//
// NAME is the stem of the file; for a second file with the same stem it is
// STEM_2. Only the names are kept in memory. The folder is created with the
// first file, under a name that no other run has (numbered_folder.h).
//
// Errors: Error (exit 5) if a file cannot be written, for example on a full
// disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "worker/data/codecs/image.h"
#include "worker/metrics/detection.h"

namespace headroom::detect {

// Draws boxes with their class names and confidences into a picture.

struct AnnotateOptions {
  int line_width = 0;  // in pixels; 0: chosen from the picture's size
  bool labels = true;
  bool confidences = true;
};

// `pixels` is CV_8UC3, RGB.
void annotate(cv::Mat& pixels,
              const std::vector<metrics::Detection>& detections,
              const std::vector<std::string>& class_names,
              const AnnotateOptions& options);

// The detections in an image. The functions below write them in the formats of
// other programs:
//
//   YOLO txt   per image: class cx cy w h [confidence], fractions of the image
//   CSV        image,class,name,confidence,x1,y1,x2,y2 (pixels)
//   COCO JSON  [{image_id, category_id, bbox [x, y, w, h], score}], with the
//              ids of the annotation file if there is one. Otherwise image_id
//              is the file's stem (as a number if the stem is one; STEM_2 for
//              a second image of that id) and category_id comes from
//              usual_categories
struct ImageDetections {
  std::filesystem::path image;
  int64_t height = 0, width = 0;
  std::vector<metrics::Detection> detections;  // boxes in pixels of the image
};

std::string yolo_text(const ImageDetections& found, bool with_confidence);

std::string csv_header();
std::string csv_lines(const ImageDetections& found,
                      const std::vector<std::string>& class_names);

// The ids of the annotation file that lists the images.
struct CocoIds {
  std::map<std::string, int64_t> images;  // the id of each path
  std::vector<int64_t> categories;        // the id of each class
};
// The category ids for classes without annotations, as in YOLOv5: for COCO's 80
// class names the ids in COCO's files (1 to 90 with gaps), for other names the
// class numbers.
std::vector<int64_t> usual_categories(
    const std::vector<std::string>& class_names);

// The records of one image, as they appear between the brackets of the file:
// "\n{...},\n{...}". `taken` has the ids of the images before, as JSON; that of
// this image is added. REQUIRES: ids.categories has every class.
std::string coco_records(const ImageDetections& found, const CocoIds& ids,
                         std::set<std::string>& taken);

// The number of detections of each class: "2 RBC, 1 WBC"; "nothing" if there
// are no detections.
std::string counts_text(const ImageDetections& found,
                        const std::vector<std::string>& class_names);

struct FolderOptions {
  bool pictures = true;
  bool text = false;
  bool confidences_in_text = false;
  bool csv = false;
  bool json = false;
  CocoIds coco_ids;  // ids for the JSON; if empty, usual_categories
  bool crops = false;
  bool may_exist = false;  // true: write into the folder even if it exists
  AnnotateOptions annotate;
};

// The progress of drawing or cropping a large image.
struct LargeProgress {
  const char* step;  // "drawn"
  int64_t done = 0, of = 0;
  const char* noun;  // "line"
};
// Returns false to end the work.
using GoOn = std::function<bool(const LargeProgress&)>;

class DetectionFolder {
 public:
  DetectionFolder(std::filesystem::path folder,
                  std::vector<std::string> class_names, FolderOptions options);

  // Continues in the folder of an unfinished run. REQUIRES: no file was written
  // yet.
  void go_on_in(std::filesystem::path folder) { path_ = std::move(folder); }

  // Writes the results of an image. May draw into `pixels`.
  void add(const ImageDetections& found, cv::Mat& pixels);
  // Writes the results of an image that is too large for memory: the picture is
  // reduced and has boxes without names, and crops are read from the file.
  // Returns false if `go_on` ended the work; the tables then do not list the
  // image.
  bool add_large(const ImageDetections& found,
                 const codecs::ImageLimits& limits, const GoOn& go_on);
  // Adds an image, or a picture of a video, only to the tables: an unfinished
  // run has already written its other files.
  void add_known(const ImageDetections& found);
  void add_known_picture(const std::string& name, int64_t number,
                         ImageDetections found);

  // begin_video() returns a name for a video; call it after all images. Then
  // call add_picture() for each of its pictures: `found.image` becomes
  // NAME_number, and the boxes are drawn into `pixels` if pictures are wanted.
  std::string begin_video(const std::filesystem::path& video);
  void add_picture(const std::string& name, int64_t number,
                   ImageDetections found, cv::Mat& pixels);
  // The path of a file in the folder. Creates the folder if necessary.
  std::filesystem::path place_of(const std::filesystem::path& file);
  bool has_pictures() const { return options_.pictures; }

  void finish();
  // Removes the folder if it is empty.
  void leave_if_empty();
  // The folder; "" if no file was written.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string name_of(const std::filesystem::path& image);
  bool is_taken_by_a_picture(const std::string& name) const;
  void add_to_tables(const ImageDetections& found);
  void add_text(const ImageDetections& found, const std::string& name);
  // Writes everything except the picture.
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
  std::set<std::string> image_ids_;         // ids used in the JSON so far
  std::unique_ptr<AtomicFile> csv_, json_;  // nullptr before the first write
  bool json_has_records_ = false;
};

}  // namespace headroom::detect
