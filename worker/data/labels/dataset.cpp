#include "worker/data/labels/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/folder_index.h"
#include "worker/data/labels/parallel_for.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// An image of a split, and the results of examining it.
struct Examined {
  std::string_view path;                         // empty for an image in a pack
  std::shared_ptr<const packs::PackIndex> pack;  // nullptr for an image file
  int64_t number = 0;  // number of the image in its pack

  codecs::ImageSizeResult size;
  int64_t file_bytes = 0;
  ImageLabels labels;
  // Set if the labels can be read, even if the image cannot be decoded.
  std::optional<ImageBoxes> boxes;
  packs::SeenFiles files;
  bool knew_labels = false;  // the labels were taken from the index
};

ImageBoxes boxes_of(const LabelFile& labels) {
  return {static_cast<int64_t>(labels.boxes.size()), labels.num_polygons};
}

// What to examine. Training uses kImagesAndLabels, which opens every image that
// is new or changed.
enum class Depth : uint8_t { kLabels, kImagesAndLabels };

// Sets the labels of an image. If its label file is unchanged, the labels are
// taken from the index; else the file is read. `size` is 0 if the image's size
// is not known.
void examine_labels(const SplitImage& image, codecs::ImageSize size,
                    const KnownImage& known, const ClassRules& classes,
                    bool keep_outlines, Examined& result) {
  std::string file;
  std::optional<FileStamp> stamp;
  for (std::string& place : image.reader->label_files(image.index)) {
    stamp = stamp_of(place);
    file = std::move(place);
    if (stamp) break;
  }
  if (!stamp) {
    result.labels = image.labels(size);
    return;
  }
  result.files.labels = *stamp;
  // Boxes in pixels depend on the image's size as well as on the label file.
  const bool is_same_image =
      !image.reader->is_in_pixels() || known.has_size_of(result.files.image);
  if (is_same_image && known.has_labels_of(*stamp)) {
    result.labels.file = std::move(file);
    result.labels.labels = known.labels(classes, keep_outlines);
    result.knew_labels = true;
    result.files.believes_labels = 1;
    return;
  }
  std::string reason;
  const auto text = read_label_text(file, reason);
  result.labels = text ? image.reader->read_text(image.index, size, file, *text)
                       : unreadable_labels(file, std::move(reason));
  // Thousands of images are in memory at once. To save memory, labels with a
  // long text are not put into the index.
  constexpr size_t kMostHeld = size_t{64} << 10;
  result.files.believes_labels =
      text && text->size() <= kMostHeld && !result.labels.fault &&
      result.labels.labels.crowds == 0 && !result.labels.labels.unknown_class;
}

Examined examine(const SplitImage& image, const IndexOptions& options,
                 const KnownImage& known, const ClassRules& classes,
                 Depth depth) {
  Examined result;
  result.path = image.path;
  const std::string path(image.path);
  const bool opens_image = depth == Depth::kImagesAndLabels;
  const bool is_in_pixels = image.reader->is_in_pixels();
  codecs::ImageSize size;
  if (opens_image || is_in_pixels) {
    const auto stamp = stamp_of(path);
    result.files.image = stamp.value_or(FileStamp());
    // An image in a pack has no file of its own.
    result.file_bytes = stamp ? static_cast<int64_t>(stamp->bytes) : -1;
    if (known.has_size_of(stamp)) {
      result.size.size = known.size();
    } else if (opens_image) {
      result.size = codecs::inspect_image(path, options.limits);
    } else {
      result.size = codecs::read_image_size(path, options.limits);
    }
    size = result.size.size;
  }
  const bool is_usable = result.size.ok();
  if (!is_usable && opens_image && is_in_pixels) {
    const auto header = codecs::read_image_size(path, options.limits);
    if (header.ok()) size = header.size;
  }
  if (is_in_pixels && size.width == 0) return result;
  examine_labels(image, size, known, classes, options.keep_outlines, result);
  if (!result.labels.fault) result.boxes = boxes_of(result.labels.labels);
  if (is_usable) {
    result.files.believes_image = result.file_bytes >= 0;
  } else {
    // The objects of an unusable image are counted, but its labels are not
    // reported or used.
    LabelFile counts;
    counts.objects = result.labels.labels.objects;
    result.labels = {.file = {}, .labels = std::move(counts), .fault = {}};
    result.files.labels = {};
    result.files.believes_labels = 0;
    result.knew_labels = false;
  }
  return result;
}

}  // namespace

struct Dataset::Arrays {
  std::string path_text;
  std::vector<uint64_t> path_offsets;
  std::vector<PackedImage> packed;
  std::vector<codecs::ImageSize> sizes;
  std::vector<BoxLabel> labels;
  std::vector<uint64_t> label_offsets = {0};
  std::vector<IndexedPoint> points;
  std::vector<uint64_t> point_ends;
};

void Dataset::hold(Arrays arrays) {
  const auto held = std::make_shared<const Arrays>(std::move(arrays));
  path_text_ = held->path_text;
  path_offsets_ = held->path_offsets;
  packed_ = held->packed;
  sizes_ = held->sizes;
  labels_ = held->labels;
  label_offsets_ = held->label_offsets;
  points_ = held->points;
  point_ends_ = held->point_ends;
  memory_ = held;
}

// Builds a Dataset, and its digest, from images that are added in order.
class DatasetBuilder {
 public:
  DatasetBuilder(const configs::DataConfig& config, const IndexOptions& options)
      : keeps_outlines_(options.keep_outlines),
        root_(fs::absolute(config.file).lexically_normal().parent_path()),
        root_text_((root_ / "").string()),
        hash_(XXH3_createState(), XXH3_freeState) {
    dataset_.class_names_ = config.names;
    if (options.single_cls) {
      dataset_.class_names_ = {config.names.size() == 1 ? config.names[0]
                                                        : "item"};
    }
    arrays_.path_offsets.push_back(0);
    XXH3_64bits_reset(hash_.get());
    for (const std::string& name : dataset_.class_names_) hash_text(name);
  }

  void add(const Examined& image) {
    if (image.pack != nullptr) {
      if (dataset_.packs_.empty() || dataset_.packs_.back() != image.pack) {
        dataset_.packs_.push_back(image.pack);
      }
      arrays_.packed.push_back(
          {static_cast<uint32_t>(dataset_.packs_.size() - 1),
           static_cast<uint32_t>(image.number)});
      return add_content(image.pack->name(image.number), image);
    }
    arrays_.path_text += image.path;
    arrays_.path_offsets.push_back(arrays_.path_text.size());
    if (image.path.starts_with(root_text_)) {
      add_content(image.path.substr(root_text_.size()), image);
    } else {
      add_content(fs::path(image.path).lexically_relative(root_).string(),
                  image);
    }
  }

  Dataset finish() {
    dataset_.digest_ = XXH3_64bits_digest(hash_.get());
    arrays_.path_text.shrink_to_fit();
    arrays_.labels.shrink_to_fit();
    arrays_.points.shrink_to_fit();
    dataset_.hold(std::move(arrays_));
    return std::move(dataset_);
  }

 private:
  void add_content(std::string_view name, const Examined& examined) {
    const codecs::ImageSize size = examined.size.size;
    const std::vector<BoxLabel>& boxes = examined.labels.labels.boxes;
    arrays_.sizes.push_back(size);
    arrays_.labels.insert(arrays_.labels.end(), boxes.begin(), boxes.end());
    arrays_.label_offsets.push_back(arrays_.labels.size());
    dataset_.num_polygons_ += examined.labels.labels.num_polygons;

    hash_text(name);
    hash_value(examined.file_bytes);
    hash_value(size.height);
    hash_value(size.width);
    hash_value(static_cast<uint64_t>(boxes.size()));
    for (const BoxLabel& box : boxes) {
      hash_value(box.class_index);
      for (const float value : {box.cx, box.cy, box.w, box.h}) {
        hash_value(value);
      }
    }
    if (!keeps_outlines_) return;
    for (const Outline& outline : examined.labels.labels.outlines) {
      add(outline);
    }
  }
  void add(const Outline& outline) {
    for (const OutlinePoint& point : outline) {
      arrays_.points.push_back(
          {static_cast<float>(point.x), static_cast<float>(point.y)});
      hash_value(arrays_.points.back());
    }
    arrays_.point_ends.push_back(arrays_.points.size());
    hash_value(arrays_.point_ends.back());
  }

  template <typename T>
  void hash_value(T value) {
    XXH3_64bits_update(hash_.get(), &value, sizeof(value));
  }
  void hash_text(std::string_view text) {
    hash_value(static_cast<uint64_t>(text.size()));
    XXH3_64bits_update(hash_.get(), text.data(), text.size());
  }

  const bool keeps_outlines_;
  fs::path root_;
  std::string root_text_;  // root_ with a slash at its end
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  Dataset::Arrays arrays_;
  Dataset dataset_;
};

namespace {

// Throws if a label has a class that is not in `names`. `first` is the first
// label file with an unknown class, nullptr if there is none.
void refuse_unknown_class(const configs::DataConfig& config,
                          const ImageLabels* first, const DataReport& report) {
  if (first == nullptr) return;
  const auto classes = static_cast<int64_t>(config.names.size());
  const bool from_one = report.counts_classes_from_one(classes);
  throw Error(
      "data",
      cat(first->file, ":", first->labels.unknown_class->line, " has class ",
          first->labels.unknown_class->class_name, ", but names in ",
          config.file.string(), " has ", counted(classes, "class"), ", 0 to ",
          classes - 1, ": ", first_names(config.names),
          " (label files with such a class: ", report.files_of_unknown_classes,
          from_one ? "; with class 0: none, so these labels count "
                     "classes from 1)"
                   : ")",
          report.row_form.empty() ? "" : "; rows read as " + report.row_form,
          report.count_of(DataFaultKind::kOtherClasses) > 0
              ? "; " + report.faults[0].where + " " + report.faults[0].what
              : ""),
      from_one ? "take 1 from the class of every line"
               : "complete names, or correct the label",
      ExitCode::kData);
}

// ", such as DIR/images" if a source of the split is the folder of labels
// beside it; else "".
std::string folder_of_images_beside(const configs::DataConfig& config,
                                    const std::string& split) {
  for (const auto& [name, sources] :
       {std::pair("train", &config.train), std::pair("val", &config.val),
        std::pair("test", &config.test)}) {
    if (split != name) continue;
    for (const fs::path& source : *sources) {
      std::string folder = (source / "").string();
      constexpr std::string_view kLabels = "/labels/";
      const size_t at = folder.rfind(kLabels);
      if (at == std::string::npos) continue;
      folder.replace(at, kLabels.size(), "/images/");
      if (file_exists(folder)) return ", such as " + folder;
    }
  }
  return "";
}

}  // namespace

Error empty_split(const configs::DataConfig& config, const DataReport& report,
                  const std::vector<SplitImage>& images) {
  constexpr auto kList = DataFaultKind::kOtherClasses;
  if (report.count_of(kList) > 0) {  // no reason for missing images or boxes
    DataReport without = report;
    without.counts[static_cast<size_t>(kList)] = 0;
    std::erase_if(without.faults, [](auto& f) { return f.kind == kList; });
    return empty_split(config, without, images);
  }
  const size_t num_found = images.size();
  const std::string name = report.split + " of " + config.file.string();
  if (num_found == 0) {
    const std::string left_out =
        report.faults.empty()
            ? ""
            : ", " + counted(report.num_faults(), "file") +
                  " left out, first " + to_string(report.faults[0]);
    return Error("data", name + " has no image" + left_out,
                 "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                 "files" +
                     folder_of_images_beside(config, report.split),
                 ExitCode::kData);
  }
  if (report.images == 0) {
    const std::string why =
        report.faults.empty() ? "" : ", first " + to_string(report.faults[0]);
    return Error("data",
                 "none of " +
                     counted(static_cast<int64_t>(num_found), "image") +
                     " in " + name + " can be used" + why,
                 "replace them", ExitCode::kData);
  }
  if (report.num_faults() > 0) {
    const auto largest = static_cast<DataFaultKind>(
        std::ranges::max_element(report.counts) - report.counts.begin());
    const bool from_one = report.counts_classes_from_one(
        static_cast<int64_t>(config.names.size()));
    return Error("data",
                 "none of " + counted(report.images, "image") + " in " + name +
                     " has a box that can be used: " + report.counts_text() +
                     (from_one ? ", with classes from 1" : "") + ", first " +
                     to_string(report.faults.front()),
                 std::string(remedy_of(largest)), ExitCode::kData);
  }
  if (const auto foreign = foreign_labels(config, images)) {
    return Error("data",
                 "none of " + counted(report.images, "image") + " in " + name +
                     " has a box, but " + foreign->what,
                 foreign->remedy, ExitCode::kData);
  }
  const std::string table = unused_table(config, report.split, images);
  if (!table.empty()) {
    return Error("data",
                 "none of " + counted(report.images, "image") + " in " + name +
                     " has a box, but " + table + " lies there",
                 "name it: " + report.split + ": " + table +
                     ", and in images: the folder that its filenames are in",
                 ExitCode::kData);
  }
  return Error("data",
               "none of " + counted(report.images, "image") + " in " + name +
                   " has a box; labels of the first are looked for in " +
                   images.front().labels({1, 1}).file,
               "put labels there (YOLO: one `class cx cy w h` per line)",
               ExitCode::kData);
}

namespace {

// Adds an image to the report. Returns whether the image is kept.
bool report_image(const Examined& image, DataReport& report) {
  if (image.pack == nullptr || image.size.ok()) {
    return add_image(image.path, image.size.reason, image.labels, report);
  }
  // The images of a missing shard are reported together elsewhere.
  add_classes(image.labels.labels, report);
  return false;
}

}  // namespace

fs::path Dataset::path(int64_t index) const {
  if (!packed_.empty()) {
    const PackedImage& image = packed_[index];
    return packs_[image.pack]->path(image.number);
  }
  const uint64_t begin = path_offsets_[index];
  return std::string_view(path_text_.data() + begin,
                          path_offsets_[index + 1] - begin);
}

std::span<const BoxLabel> Dataset::labels(int64_t index) const {
  const uint64_t begin = label_offsets_[index];
  return {labels_.data() + begin, label_offsets_[index + 1] - begin};
}

Outlines Dataset::outlines(int64_t index) const {
  if (point_ends_.empty()) return {};
  const uint64_t first = label_offsets_[index];
  const uint64_t begin = first == 0 ? 0 : point_ends_[first - 1];
  return {{point_ends_.data() + first, label_offsets_[index + 1] - first},
          begin,
          points_.data() + begin};
}

void Dataset::keep(const std::vector<int64_t>& images) {
  Arrays part;
  int64_t polygons = 0;
  if (packed_.empty()) part.path_offsets.push_back(0);
  for (const int64_t index : images) {
    if (packed_.empty()) {
      part.path_text += path(index).native();
      part.path_offsets.push_back(part.path_text.size());
    } else {
      part.packed.push_back(packed_[index]);
    }
    part.sizes.push_back(sizes_[index]);
    const std::span<const BoxLabel> boxes = labels(index);
    part.labels.insert(part.labels.end(), boxes.begin(), boxes.end());
    part.label_offsets.push_back(part.labels.size());
    for (uint64_t box = label_offsets_[index];
         !point_ends_.empty() && box < label_offsets_[index + 1]; ++box) {
      const uint64_t begin = box == 0 ? 0 : point_ends_[box - 1];
      const uint64_t end = point_ends_[box];
      part.points.insert(part.points.end(), points_.begin() + begin,
                         points_.begin() + end);
      part.point_ends.push_back(part.points.size());
      if (end > begin) ++polygons;
    }
  }
  if (!point_ends_.empty()) num_polygons_ = polygons;
  digest_ = XXH3_64bits_withSeed(
      images.data(), images.size() * sizeof(images.front()), digest_);
  hold(std::move(part));
}

namespace {

// Calls `take` for each image of a pack, examined through the pack's index.
// Images whose shard is missing or too short get a reason instead of a size. No
// image is opened.
template <typename Take>
void each_packed_image(const packs::Pack& pack, const ClassRules& classes,
                       bool keep_outlines, DataReport& report,
                       const Take& take) {
  report_damage(pack, report);
  const packs::PackIndex& index = *pack.index;
  std::vector<packs::PackIndex::ShardState> shards;
  for (int64_t i = 0; i < index.num_shards(); ++i) {
    shards.push_back(index.shard_state(static_cast<uint32_t>(i)));
  }
  std::vector<int64_t> missing(shards.size());
  auto damaged = pack.damaged.begin();
  for (int64_t i = 0; i < index.size(); ++i) {
    if (damaged != pack.damaged.end() && *damaged == i) {
      ++damaged;
      continue;
    }
    const packs::IndexedImage& entry = index.image(i);
    Examined image;
    image.pack = pack.index;
    image.number = i;
    image.file_bytes = static_cast<int64_t>(entry.bytes);
    LabelFile& labels = image.labels.labels;
    labels = labels_of(pack.labels.of(entry), classes, keep_outlines);
    if (labels.unknown_class) image.labels.file = index.path(i).string();
    image.boxes = boxes_of(labels);
    if (entry.offset + entry.bytes <= shards[entry.shard].bytes) {
      image.size.size = {entry.height, entry.width};
    } else {
      ++missing[entry.shard];
      image.size.reason = shards[entry.shard].fault;
    }
    take(image);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].fault.empty()) continue;
    report.add({DataFaultKind::kUnreadableImage,
                index.shard(static_cast<uint32_t>(i)).string(), shards[i].fault,
                missing[i] == 0 ? "all its images are there"
                                : counted(missing[i], "image") +
                                      " and their boxes left out"});
  }
}

// Opens the packs of a split. Returns an empty list if the split is not packed,
// or if the packs' indexes are not enough. They are not enough if the model
// reads bands other than colours, or if an image has other bands: then the
// headers of the images have to be read.
std::vector<packs::Pack> packs_of(const configs::DataConfig& config,
                                  Split split, const IndexOptions& options) {
  std::vector<packs::Pack> packs;
  const std::vector<fs::path>& sources = split_sources(config, split);
  if (!is_packed(sources) || options.limits.bands != codecs::kColours) {
    return packs;
  }
  for (const fs::path& source : sources) {
    packs.push_back(packs::read_pack(source));
    const packs::PackIndex& index = *packs.back().index;
    for (int64_t i = 0; i < index.size(); ++i) {
      if (index.image(i).has_colours == 0) return {};
    }
  }
  return packs;
}

// Calls `take` for each image of a split, in the order of the data set.
// Training receives the images of a split only from this function, for every
// kind of source.
template <typename Take>
void each_image(const configs::DataConfig& config, Split split,
                const IndexOptions& options, Depth depth, DataReport& report,
                const Take& take) {
  const ClassRules classes{config.names, options.single_cls};
  const std::vector<packs::Pack> packs = packs_of(config, split, options);
  for (const packs::Pack& pack : packs) {
    each_packed_image(pack, classes, options.keep_outlines, report, take);
  }
  if (!packs.empty()) return;
  const SplitImages opened = open_split(config, split, options.single_cls,
                                        report, options.keep_outlines);
  const std::vector<SplitImage>& images = opened.images;
  const bool is_scan = depth == Depth::kImagesAndLabels;
  codecs::ImageLimits limits = options.limits;
  // The number of boxes does not depend on bands. So counting uses the index
  // for colours, which the training of most models has written.
  if (!is_scan && limits.bands == codecs::kAnyBands) {
    limits.bands = codecs::kColours;
  }
  ClassRules rules = classes;
  if (!opened.row_form.empty()) rules.names.push_back(opened.row_form);
  FolderIndex index(index_place(options.kept_in, config, split, limits), images,
                    rules, /*is_kept=*/is_scan);
  for (const FolderIndex::Chunk* chunk = &index.next(); chunk->size() > 0;
       chunk = &index.next()) {
    std::vector<Examined> examined(chunk->size());
    parallel_for(static_cast<int64_t>(chunk->size()), options.num_threads,
                 [&](int64_t i) {
                   const auto at = static_cast<size_t>(i);
                   examined[at] = examine(images[chunk->begin + at], options,
                                          chunk->known[at], classes, depth);
                 });
    for (const Examined& image : examined) {
      take(image);
      if (!is_scan) continue;
      index.keep(image.files, image.size.size, image.labels.labels,
                 image.knew_labels);
    }
  }
  if (!is_scan) return;
  for (std::string& note : index.finish()) {
    report.notes.push_back(std::move(note));
  }
}

}  // namespace

IndexedDataset index_dataset(const configs::DataConfig& config, Split split,
                             const IndexOptions& options) {
  IndexedDataset result;
  DataReport& report = result.report;
  report.split = split_name(split);
  DatasetBuilder builder(config, options);
  std::optional<ImageLabels> unknown;
  each_image(config, split, options, Depth::kImagesAndLabels, report,
             [&](const Examined& image) {
               if (!unknown && image.labels.labels.unknown_class) {
                 unknown = image.labels;
               }
               if (!image.size.ok() && image.boxes) {
                 result.undecodable.push_back(*image.boxes);
               }
               if (report_image(image, report)) builder.add(image);
             });
  refuse_unknown_class(config, unknown ? &*unknown : nullptr, report);
  if (report.boxes == 0) {
    DataReport ignored;
    throw empty_split(
        config, report,
        open_split(config, split, options.single_cls, ignored).images);
  }
  result.dataset = builder.finish();
  return result;
}

BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options) {
  DataReport ignored;  // the run's own report lists these faults
  BoxCounts result;
  each_image(config, split, options, Depth::kLabels, ignored,
             [&](const Examined& image) {
               if (!image.boxes) return;
               result.boxes.push_back(image.boxes->boxes);
               result.polygons += image.boxes->polygons;
             });
  if (result.boxes.empty()) {
    throw Error("data",
                "no image to train on is named in " + config.file.string(),
                "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                "files",
                ExitCode::kData);
  }
  return result;
}

BoxCounts count_boxes(const IndexedDataset& indexed) {
  BoxCounts result;
  for (int64_t i = 0; i < indexed.dataset.size(); ++i) {
    result.boxes.push_back(
        static_cast<int64_t>(indexed.dataset.labels(i).size()));
  }
  result.polygons = indexed.dataset.num_polygons();
  for (const ImageBoxes& image : indexed.undecodable) {
    result.boxes.push_back(image.boxes);
    result.polygons += image.polygons;
  }
  return result;
}

}  // namespace headroom::labels
