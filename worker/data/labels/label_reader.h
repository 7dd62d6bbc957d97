// LabelReader: the images of one source of a split, and their boxes. Each
// format has one implementation; all formats treat the boxes by the same rules
// (box_rules.h).
//
//   a folder, a .txt list, an image   YOLO's text files (file_list.h,
//                                     label_file.h). An image without one may
//                                     have a STEM.geojson in the same place
//                                     (geojson_labels.cpp), or else a STEM.xml
//                                     of Pascal VOC (voc_labels.cpp). If no
//                                     image has any of these, a table
//                                     train_labels.csv beside them or beside
//                                     the data file is used.
//   a .csv                            one box per line (csv_labels.cpp)
//   a .json                           COCO (coco_labels.cpp), or GeoJSON
//   a .geojson                        polygons on the map (geojson_labels.cpp)
//   ImageSets/Main/NAME.txt           Pascal VOC (voc_labels.cpp)
//   a .index                          packs (packed_labels.cpp)
//
// Threads: read() and read_text() may be called from any number of threads, all
// other functions from one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/known_formats.h"
#include "worker/data/labels/label_file.h"

namespace headroom::maps {
class MapApi;
}
namespace headroom::packs {
struct ImageLabels;
struct Pack;
}  // namespace headroom::packs

namespace headroom::labels {

// One of the three parts of a data set that a data.yaml names.
enum class Split : uint8_t { kTrain, kVal, kTest };

// The name of a split as in data.yaml, for example "train".
std::string split_name(Split split);

// Returns train, val and, if the data file names it, test.
std::vector<Split> named_splits(const configs::DataConfig& config);

// The folders and lists of a split. Throws Error (exit 4) if the data file
// names none for the split.
const std::vector<std::filesystem::path>& split_sources(
    const configs::DataConfig& config, Split split);

// The folder that the data file names for the images of a COCO JSON, GeoJSON or
// CSV; empty if it names none.
const std::filesystem::path& split_images(const configs::DataConfig& config,
                                          Split split);

struct ImageLabels {
  std::string file;  // path of the label file, even if it does not exist
  LabelFile labels;  // empty if `fault` is set
  std::optional<DataFault> fault;  // a fault of the file as a whole
};

// Adds an image with its labels to the report of its split; call it in the
// order of the files. `reason` is the reason why the image cannot be read, ""
// if it can. Returns whether the image is kept.
bool add_image(std::string_view image, const std::string& reason,
               const ImageLabels& labels, DataReport& report);

// The result for labels that cannot be read; their image is left out.
ImageLabels unreadable_labels(const std::string& file, std::string reason);

class LabelReader {
 public:
  virtual ~LabelReader() = default;

  // Absolute paths in any order; the files need not exist.
  virtual const std::vector<std::string>& images() const = 0;

  // Whether boxes are in pixels. Then read() needs the image's size.
  virtual bool is_in_pixels() const = 0;

  // REQUIRES: index < images().size(); `size` is positive if is_in_pixels().
  virtual ImageLabels read(size_t index, codecs::ImageSize size) const = 0;

  // The candidates for this image's own label file; the first that exists is
  // used. Returns an empty list if many images share a file.
  virtual std::vector<std::string> label_files(size_t) const { return {}; }

  // As read(), for a label file with the given text. `file` is one of
  // label_files().
  virtual ImageLabels read_text(size_t index, codecs::ImageSize size,
                                const std::string& file,
                                std::string_view text) const;
};

// Images that have label files of their own.
class OwnFileLabels : public LabelReader {
 public:
  explicit OwnFileLabels(std::vector<std::string> images)
      : images_(std::move(images)) {}

  const std::vector<std::string>& images() const override { return images_; }
  // Reads the first of label_files() that exists.
  ImageLabels read(size_t index, codecs::ImageSize size) const override;

 protected:
  const std::vector<std::string> images_;
};

// An image of a split, and the reader of its boxes.
struct SplitImage {
  std::string_view path;  // refers to text in the reader
  const LabelReader* reader = nullptr;
  size_t index = 0;

  ImageLabels labels(codecs::ImageSize size) const {
    return reader->read(index, size);
  }
};

struct SplitImages {
  std::vector<std::unique_ptr<LabelReader>> readers;
  std::vector<SplitImage> images;  // sorted by path, each once
  // RowForm::text() of the YOLO label files. The form decides how labels are
  // read, so an index of labels is valid only for the same form.
  std::string row_form;
};

// Opens all sources of a split. Faults in lists go to `report`. Throws Error
// (exit 4) if a source cannot be read, the split is not named, or there is
// GeoJSON but no map plugin. Outlines of a COCO file are read only with
// `keep_outlines`.
SplitImages open_split(const configs::DataConfig& config, Split split,
                       bool single_cls, DataReport& report,
                       bool keep_outlines = false);

// Looks for a table of labels that is not in use, at the usual places: beside
// the data file and in the folders of the images. Used in the error message for
// a split without boxes. Returns "" if no table is found.
std::string unused_table(const configs::DataConfig& config,
                         const std::string& split,
                         const std::vector<SplitImage>& images);

// The first of `names`, for messages: "cat, dog and 78 more".
std::string first_names(const std::vector<std::string>& names);

// The class names that readers match labels against.
struct ClassRules {
  std::vector<std::string> names;
  bool single_cls = false;

  // The index of the class with that name. If `names` has no such class,
  // returns nullopt and sets labels.unknown_class.
  std::optional<int32_t> find(const std::string& name, int64_t line,
                              LabelFile& labels) const;
};

// Images whose boxes are in one file, in pixels.
class TableLabels : public LabelReader {
 public:
  const std::vector<std::string>& images() const override { return images_; }
  bool is_in_pixels() const override { return true; }

 protected:
  TableLabels(const std::filesystem::path& file, ClassRules classes)
      : file_(file.string()), classes_(std::move(classes)) {}

  // "train.json:7"
  std::string place(int64_t line) const {
    return file_ + ":" + std::to_string(line);
  }
  // Whether an image's name in the table is a path inside the images' folder.
  // If not, reports a fault; `key` is the table's key or column for names.
  static bool check_name(const std::string& key, const std::string& name,
                         std::string where, DataReport& report);

  const std::string file_;
  const ClassRules classes_;
  std::vector<std::string> images_;
};

// The folder that file names in `file` are relative to: `images`, or the folder
// of `file` if `images` is empty.
std::filesystem::path folder_of_images(const std::filesystem::path& file,
                                       const std::filesystem::path& images);

// The images and boxes of a COCO JSON. File names are relative to `images`, or
// to the file's folder if `images` is empty. Without `keep_outlines` outlines
// are only counted. Throws Error (exit 4) if the file is not a COCO JSON. A box
// of an unknown image, and an image whose name leads out of its folder, are
// faults.
std::unique_ptr<LabelReader> open_coco_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report, bool keep_outlines);

// The images and boxes of a split of a Pascal VOC folder. Throws Error (exit 4)
// if the list cannot be read. A stem without an image, and an annotation that
// is not XML, are faults. REQUIRES: is_voc_split(split).
std::unique_ptr<LabelReader> open_voc_labels(const std::filesystem::path& split,
                                             const ClassRules& classes,
                                             DataReport& report);

// The candidates for the annotation file of an image: STEM.xml beside it, or in
// a folder beside its images folder.
std::vector<std::string> voc_files_of(std::string_view image);

// Reads images whose boxes are in the files of voc_files_of().
std::unique_ptr<LabelReader> open_voc_files(std::vector<std::string> images,
                                            const ClassRules& classes);

// The images and boxes of a CSV. Its first line must name the columns filename,
// class, xmin, ymin, xmax and ymax, in any order and among others. File names
// are relative to `images`. If `images` is empty, they are relative to the
// CSV's folder or to a folder in it (train for train_labels.csv). Throws Error
// (exit 4) if a column is missing.
std::unique_ptr<LabelReader> open_csv_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report);

// As open_csv_labels, but only for images in `images` that the table names. A
// name that matches none or several of `images` is a fault. If the file is not
// a valid table, reports a fault and returns nullptr.
std::unique_ptr<LabelReader> open_csv_labels_of(
    const std::filesystem::path& file, const std::vector<std::string>& images,
    const ClassRules& classes, DataReport& report);

// The candidates for an image's GeoJSON: label_paths() with .geojson.
std::vector<std::string> geojson_paths(std::string_view image);

// Reads images whose boxes are in the files of geojson_paths(). Each image must
// have map coordinates of its own. `maps` must outlive the reader.
std::unique_ptr<LabelReader> open_geojson_files(std::vector<std::string> images,
                                                const ClassRules& classes,
                                                maps::MapApi& maps);

// The images below the folder `images`, or below the file's own folder if
// `images` is empty, that show polygons of the file. Each image gets the
// polygons as boxes, clipped as in tiles. A polygon whose property `image`
// names one of the images belongs to that image only. A polygon of which every
// image shows too little is a fault; polygons outside all images are counted in
// a note. Throws Error (exit 4) if the file is not GeoJSON. `maps` must outlive
// the reader.
std::unique_ptr<LabelReader> open_geojson_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report, maps::MapApi& maps);

// Looks for labels of other programs at their usual places: beside the images
// and around the data file. Used in the refusal of a split without boxes.
std::optional<NamedFormat> foreign_labels(
    const configs::DataConfig& config, const std::vector<SplitImage>& images);

// Whether all sources are indexes of packs.
bool is_packed(const std::vector<std::filesystem::path>& sources);

// Reports a fault for every image whose entry in the pack is damaged.
void report_damage(const packs::Pack& pack, DataReport& report);

// Converts the boxes that an index holds for an image (packs/image_index.h).
LabelFile labels_of(const packs::ImageLabels& own, const ClassRules& classes,
                    bool keep_outlines);

// The images and boxes of an index of packs. Throws Error (exit 4) if the index
// is unreadable.
std::unique_ptr<LabelReader> open_packed_labels(
    const std::filesystem::path& index, const ClassRules& classes,
    DataReport& report, bool keep_outlines);

}  // namespace headroom::labels
