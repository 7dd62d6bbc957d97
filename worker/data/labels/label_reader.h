// LabelReader: the images of one source of a split and their boxes. One
// implementation per format; what is done with a box is the same for all
// (box_rules.h).
//
//   a folder, a .txt list, an image   YOLO's text files (file_list,
//   label_file);
//                                     where an image has none, a STEM.geojson
//                                     in such a file's place
//                                     (geojson_labels.cpp), then a STEM.xml of
//                                     Pascal VOC beside it (voc_labels.cpp)
//                                     where no image has either, a table
//                                     train_labels.csv beside them or the data
//                                     file
//   a .csv                            one box a line (csv_labels.cpp)
//   a .json                           COCO (coco_labels.cpp), or GeoJSON
//   a .geojson                        polygons on the map (geojson_labels.cpp)
//   ImageSets/Main/NAME.txt           Pascal VOC (voc_labels.cpp)
//   a .index                          packs (packed_labels.cpp)
//
// Threads: read() from any number of threads; the rest from one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/label_file.h"

namespace headroom::maps {
class MapApi;
}
namespace headroom::packs {
struct Pack;
}

namespace headroom::labels {

// One of a data set's three parts, as its data.yaml names them.
enum class Split : uint8_t { kTrain, kVal, kTest };

// "train".
std::string split_name(Split split);

// The folders and lists of a split. Throws Error (exit 4) if the data.yaml
// names none.
const std::vector<std::filesystem::path>& split_sources(
    const configs::DataConfig& config, Split split);

// The folder at which file names of a COCO JSON start; empty: the JSON's own.
const std::filesystem::path& split_images(const configs::DataConfig& config,
                                          Split split);

struct ImageLabels {
  std::string file;                // the place of the labels, present or not
  LabelFile labels;                // empty where `fault` is set
  std::optional<DataFault> fault;  // a fault of the file as a whole
};

// Labels that cost their image.
ImageLabels unreadable_labels(const std::string& file, std::string reason);

class LabelReader {
 public:
  virtual ~LabelReader() = default;

  // Absolute paths in any order; they need not exist.
  virtual const std::vector<std::string>& images() const = 0;

  // Are boxes in pixels, so that read() needs the image's size?
  virtual bool is_in_pixels() const = 0;

  // REQUIRES: index < images().size(); `size` positive where is_in_pixels().
  virtual ImageLabels read(size_t index, codecs::ImageSize size) const = 0;

  // The files of which the first that is there has the boxes of this image
  // alone; none where many images share a file.
  virtual std::vector<std::string> label_files(size_t) const { return {}; }

  // What read() gives where `file`, one of label_files(), has this text.
  virtual ImageLabels read_text(size_t index, codecs::ImageSize size,
                                const std::string& file,
                                std::string_view text) const;
};

// An image of a split, and who knows its boxes.
struct SplitImage {
  std::string_view path;  // the reader's
  const LabelReader* reader = nullptr;
  size_t index = 0;

  ImageLabels labels(codecs::ImageSize size) const {
    return reader->read(index, size);
  }
};

struct SplitImages {
  std::vector<std::unique_ptr<LabelReader>> readers;
  std::vector<SplitImage> images;  // sorted by rising path, each once
};

// Faults of the lists themselves go to `report`. Throws Error (exit 4): a
// source that cannot be read, a split that is not named, GeoJSON where no
// plugin reads maps. A COCO file's outlines are read only with `keep_outlines`.
SplitImages open_split(const configs::DataConfig& config, Split split,
                       bool single_cls, DataReport& report,
                       bool keep_outlines = false);

// A table of labels that lies where people put them, beside the data file or in
// a folder of the images, and that nobody reads: what to tell somebody whose
// split has no box. "" where there is none.
std::string unused_table(const configs::DataConfig& config,
                         const std::string& split,
                         const std::vector<SplitImage>& images);

// What a reader of `config` has to know of classes.
struct ClassRules {
  std::vector<std::string> names;
  bool single_cls = false;

  // The class of that name; nothing, and labels.unknown_class set, if `names`
  // has none.
  std::optional<int32_t> find(const std::string& name, int64_t line,
                              LabelFile& labels) const;
};

// The images and boxes of a COCO JSON whose file names start at `images`, or
// beside the file where that is "". Without `keep_outlines` outlines are
// counted alone. Throws Error (exit 4) for a file that is not such a JSON; a
// box of an image that the file does not have, and an image whose name leads
// out of its folder, are faults.
std::unique_ptr<LabelReader> open_coco_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report, bool keep_outlines);

// The images and boxes of a split of a Pascal VOC folder. Throws Error (exit 4)
// for a list that cannot be read; a stem without an image and a file that is
// not XML are faults. REQUIRES: is_voc_split(split).
std::unique_ptr<LabelReader> open_voc_labels(const std::filesystem::path& split,
                                             const ClassRules& classes,
                                             DataReport& report);

// STEM.xml beside an image.
std::string voc_file_of(std::string_view image);

// Images whose boxes are in such files.
std::unique_ptr<LabelReader> open_voc_files(std::vector<std::string> images,
                                            const ClassRules& classes);

// The images and boxes of a CSV whose first line names the columns filename,
// class, xmin, ymin, xmax and ymax, in any order and among others. File names
// start at `images`, or where that is "", at the CSV's own folder or at one
// beside it: train of train_labels.csv. Throws Error (exit 4) for a file
// without these columns.
std::unique_ptr<LabelReader> open_csv_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report);

// The same of those of `images` that such a table names; a name that none of
// them or more than one has is a fault. Null, and a fault, where the file is no
// such table.
std::unique_ptr<LabelReader> open_csv_labels_of(
    const std::filesystem::path& file, const std::vector<std::string>& images,
    const ClassRules& classes, DataReport& report);

// The places of an image's GeoJSON: those of label_paths().
std::vector<std::string> geojson_paths(std::string_view image);

// The first of them that is there; the first of all where none is.
std::string geojson_file_of(std::string_view image);

// Images whose boxes are in such files; each needs coordinates of its own.
// Borrows the plugin, and so does the next.
std::unique_ptr<LabelReader> open_geojson_files(std::vector<std::string> images,
                                                const ClassRules& classes,
                                                maps::MapApi& maps);

// The images below the folder `images`, or below the file's own where that is
// "", in which polygons of the file lie, and these as boxes, cut as tiles cut
// them. A polygon whose property `image` names one of the images belongs to
// that alone; one that lies in none is a fault. Throws Error (exit 4) for a
// file that is no GeoJSON.
std::unique_ptr<LabelReader> open_geojson_labels(
    const std::filesystem::path& file, const std::filesystem::path& images,
    const ClassRules& classes, DataReport& report, maps::MapApi& maps);

// Do all of these sources lie in packs?
bool is_packed(const std::vector<std::filesystem::path>& sources);

// The images whose entries are damaged become faults.
void report_damage(const packs::Pack& pack, DataReport& report);

// An image's boxes as its index has them. REQUIRES: it is not damaged.
LabelFile labels_of(const packs::Pack& pack, int64_t number,
                    const ClassRules& classes, bool keep_outlines);

// The images and boxes of an index of packs. Throws Error (exit 4) where that
// cannot be read.
std::unique_ptr<LabelReader> open_packed_labels(
    const std::filesystem::path& index, const ClassRules& classes,
    DataReport& report, bool keep_outlines);

}  // namespace headroom::labels
