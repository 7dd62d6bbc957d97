#include "worker/data/labels/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/parallel_for.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/folder_index.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// The result of examining one image.
struct Examined {
  codecs::ImageSizeResult size;
  int64_t file_bytes = 0;
  ImageLabels labels;
  // Boxes of an image that cannot be decoded, if its labels can be read.
  std::optional<ImageBoxes> undecodable;
};

ImageBoxes boxes_of(const LabelFile& labels) {
  return {static_cast<int64_t>(labels.boxes.size()), labels.num_polygons};
}

// Returns the boxes of an image. If its label file is unchanged, uses the text
// in `known`; else reads the file and stores the text in `found`. REQUIRES:
// `size` is set if the boxes are in pixels.
ImageLabels labels_of(const SplitImage& image, codecs::ImageSize size,
                      const KnownImage* known, KnownImage& found) {
  std::string file;
  std::optional<FileStamp> stamp;
  for (std::string& place : image.reader->label_files(image.index)) {
    stamp = stamp_of(place);
    file = std::move(place);
    if (stamp) break;
  }
  if (!stamp) return image.labels(size);
  found.labels = *stamp;
  if (known != nullptr && known->believes_labels && known->labels == *stamp) {
    found.label_text = known->label_text;
  } else {
    std::string reason;
    auto text = read_label_text(file, reason);
    if (!text) return unreadable_labels(file, std::move(reason));
    found.label_text = std::move(*text);
  }
  ImageLabels labels =
      image.reader->read_text(image.index, size, file, found.label_text);
  // Thousands of texts are in memory at once, so a long one is not kept.
  constexpr size_t kMostHeld = size_t{64} << 10;
  found.believes_labels = found.label_text.size() <= kMostHeld;
  if (!found.believes_labels) found.label_text = {};
  return labels;
}

Examined examine(const SplitImage& image, const IndexOptions& options,
                 const KnownImage* known, KnownImage& found) {
  Examined result;
  const std::string path(image.path);
  const auto stamp = stamp_of(path);
  found.image = stamp.value_or(FileStamp());
  if (known != nullptr && known->believes_image && known->image == stamp) {
    result.size.size = known->size;
  } else {
    result.size = codecs::inspect_image(path, options.limits);
  }
  if (!result.size.ok()) {
    result.undecodable = count_boxes(image, options.limits, known);
    return result;
  }
  found.believes_image = stamp.has_value();
  found.size = result.size.size;
  // An image in a pack has no file of its own.
  result.file_bytes = stamp ? static_cast<int64_t>(stamp->bytes) : -1;
  result.labels = labels_of(image, found.size, known, found);
  if (!options.keep_outlines) result.labels.labels.outlines = {};
  return result;
}

}  // namespace

// Builds a Dataset, and its digest, from images that are added in order.
class DatasetBuilder {
 public:
  DatasetBuilder(const configs::DataConfig& config, bool single_cls)
      : root_(fs::absolute(config.file).lexically_normal().parent_path()),
        root_text_((root_ / "").string()),
        hash_(XXH3_createState(), XXH3_freeState) {
    dataset_.class_names_ = config.names;
    if (single_cls) {
      dataset_.class_names_ = {config.names.size() == 1 ? config.names[0]
                                                        : "item"};
    }
    dataset_.path_offsets_.push_back(0);
    dataset_.label_offsets_.push_back(0);
    XXH3_64bits_reset(hash_.get());
    for (const std::string& name : dataset_.class_names_) hash_text(name);
  }

  void add(std::string_view image, const Examined& examined) {
    dataset_.path_text_ += image;
    dataset_.path_offsets_.push_back(dataset_.path_text_.size());
    if (image.starts_with(root_text_)) {
      add_content(image.substr(root_text_.size()), examined);
    } else {
      add_content(fs::path(image).lexically_relative(root_).string(), examined);
    }
  }

  void begin_pack(std::shared_ptr<const packs::PackIndex> pack) {
    dataset_.packs_.push_back(std::move(pack));
  }
  // Adds an image of the newest pack.
  void add_packed(int64_t number, const Examined& examined) {
    dataset_.packed_.push_back(
        {static_cast<uint32_t>(dataset_.packs_.size() - 1),
         static_cast<uint32_t>(number)});
    add_content(dataset_.packs_.back()->name(number), examined);
  }

  Dataset finish() {
    dataset_.digest_ = XXH3_64bits_digest(hash_.get());
    dataset_.path_text_.shrink_to_fit();
    dataset_.labels_.shrink_to_fit();
    dataset_.points_.shrink_to_fit();
    return std::move(dataset_);
  }

 private:
  void add_content(std::string_view name, const Examined& examined) {
    const codecs::ImageSize size = examined.size.size;
    const std::vector<BoxLabel>& boxes = examined.labels.labels.boxes;
    dataset_.sizes_.push_back(size);
    dataset_.labels_.insert(dataset_.labels_.end(), boxes.begin(), boxes.end());
    dataset_.label_offsets_.push_back(dataset_.labels_.size());
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
    for (const Outline& outline : examined.labels.labels.outlines) {
      add(outline);
    }
  }
  void add(const Outline& outline) {
    for (const OutlinePoint& point : outline) {
      dataset_.points_.push_back(
          {static_cast<float>(point.x), static_cast<float>(point.y)});
      hash_value(dataset_.points_.back());
    }
    dataset_.point_ends_.push_back(dataset_.points_.size());
    hash_value(dataset_.point_ends_.back());
  }

  template <typename T>
  void hash_value(T value) {
    XXH3_64bits_update(hash_.get(), &value, sizeof(value));
  }
  void hash_text(std::string_view text) {
    hash_value(static_cast<uint64_t>(text.size()));
    XXH3_64bits_update(hash_.get(), text.data(), text.size());
  }

  fs::path root_;
  std::string root_text_;  // root_ with a slash at its end
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  Dataset dataset_;
};

namespace {

// Throws if a label has a class that is not in `names`. `first` is the first
// such label file, nullptr if there is none.
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
          classes - 1,
          " (label files with such a class: ", report.files_of_unknown_classes,
          from_one ? "; with class 0: none, so these labels count "
                     "classes from 1)"
                   : ")"),
      from_one ? "take 1 from the class of every line"
               : "complete names, or correct the label",
      ExitCode::kData);
}

[[noreturn]] void refuse_empty(const configs::DataConfig& config,
                               const DataReport& report,
                               const std::vector<SplitImage>& images) {
  const size_t num_found = images.size();
  const std::string name = report.split + " of " + config.file.string();
  if (num_found == 0) {
    const std::string left_out =
        report.faults.empty()
            ? ""
            : ", " + counted(report.num_faults(), "file") +
                  " left out, first " + to_string(report.faults[0]);
    throw Error("data", name + " has no image" + left_out,
                "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                "files",
                ExitCode::kData);
  }
  if (report.images == 0) {
    const std::string why =
        report.faults.empty() ? "" : ", first " + to_string(report.faults[0]);
    throw Error("data",
                "none of " + counted(static_cast<int64_t>(num_found), "image") +
                    " in " + name + " can be used" + why,
                "replace them", ExitCode::kData);
  }
  const int64_t in_pixels =
      report.counts[static_cast<size_t>(DataFaultKind::kInPixels)];
  if (report.num_faults() > 0) {
    throw Error("data",
                "none of " + counted(report.images, "image") + " in " + name +
                    " has a box that can be used: " + report.counts_text() +
                    ", first " + to_string(report.faults.front()),
                in_pixels > 0 ? "write cx cy w h as fractions of the image's "
                                "width and height"
                              : "correct the labels",
                ExitCode::kData);
  }
  const std::string table = unused_table(config, report.split, images);
  if (!table.empty()) {
    throw Error("data",
                "none of " + counted(report.images, "image") + " in " + name +
                    " has a box, but " + table + " lies there",
                "name it: " + report.split + ": " + table +
                    ", and in images: the folder that its filenames are in",
                ExitCode::kData);
  }
  throw Error("data",
              "none of " + counted(report.images, "image") + " in " + name +
                  " has a box; labels of the first are looked for in " +
                  images.front().labels({1, 1}).file,
              "put labels there (YOLO: one `class cx cy w h` per line)",
              ExitCode::kData);
}

void count_kept(const LabelFile& labels, DataReport& report) {
  const auto boxes = static_cast<int64_t>(labels.boxes.size());
  ++report.images;
  report.boxes += boxes;
  if (boxes == 0) ++report.background;
}

// Adds an image to the report; called in the order of the files. Returns
// whether the image is kept.
bool report_image(std::string_view image, const Examined& examined,
                  DataReport& report) {
  if (!examined.size.ok()) {
    report.add({DataFaultKind::kUnreadableImage, std::string(image),
                examined.size.reason, "image and its boxes left out"});
    return false;
  }
  if (examined.labels.fault) {
    report.add(*examined.labels.fault);
    return false;
  }
  const LabelFile& labels = examined.labels.labels;
  for (const DataFault& fault : labels.faults) report.add(fault);
  count_kept(labels, report);
  return true;
}

}  // namespace

fs::path Dataset::path(int64_t index) const {
  if (!packed_.empty()) {
    const PackedImage& image = packed_[index];
    return packs_[image.pack]->path(image.number);
  }
  const uint64_t begin = path_offsets_[index];
  return path_text_.substr(begin, path_offsets_[index + 1] - begin);
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

namespace {

// Calls `image` for each image of a pack with what the pack's index says of it.
// Images whose shard is missing or too short get a reason instead of a size. No
// image is opened.
template <typename Image>
void each_packed_image(const configs::DataConfig& config,
                       const packs::Pack& pack, const IndexOptions& options,
                       DataReport& report, const Image& image) {
  report_damage(pack, report);
  const packs::PackIndex& index = *pack.index;
  const ClassRules classes{config.names, options.single_cls};
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
    const packs::PackedImage& entry = index.image(i);
    Examined examined;
    examined.file_bytes = static_cast<int64_t>(entry.bytes);
    examined.labels.labels = labels_of(pack, i, classes, options.keep_outlines);
    if (examined.labels.labels.unknown_class) {
      examined.labels.file = index.path(i).string();
    }
    if (entry.offset + entry.bytes <= shards[entry.shard].bytes) {
      examined.size.size = {entry.height, entry.width};
    } else {
      ++missing[entry.shard];
      examined.size.reason = shards[entry.shard].fault;
      examined.undecodable = boxes_of(examined.labels.labels);
    }
    image(i, examined);
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

// Opens the packs of a split. Returns an empty list if the packs' indexes are
// not enough: if the model reads bands other than colours, or an image has
// other bands, the headers of the images have to be read.
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

IndexedDataset index_packs(const configs::DataConfig& config, Split split,
                           const std::vector<packs::Pack>& packs,
                           const IndexOptions& options) {
  IndexedDataset result;
  DataReport& report = result.report;
  report.split = split_name(split);
  DatasetBuilder builder(config, options.single_cls);
  std::optional<ImageLabels> unknown;
  for (const packs::Pack& pack : packs) {
    builder.begin_pack(pack.index);
    each_packed_image(config, pack, options, report,
                      [&](int64_t number, const Examined& image) {
                        const LabelFile& labels = image.labels.labels;
                        add_classes(labels, report);
                        if (!unknown && labels.unknown_class)
                          unknown = image.labels;
                        if (image.undecodable) {
                          result.undecodable.push_back(*image.undecodable);
                          return;
                        }
                        count_kept(labels, report);
                        builder.add_packed(number, image);
                      });
  }
  refuse_unknown_class(config, unknown ? &*unknown : nullptr, report);
  if (report.boxes == 0) {
    DataReport ignored;
    refuse_empty(config, report,
                 open_split(config, split, options.single_cls, ignored).images);
  }
  result.dataset = builder.finish();
  return result;
}

}  // namespace

IndexedDataset index_dataset(const configs::DataConfig& config, Split split,
                             const IndexOptions& options) {
  const std::vector<packs::Pack> packs = packs_of(config, split, options);
  if (!packs.empty()) return index_packs(config, split, packs, options);
  IndexedDataset result;
  result.report.split = split_name(split);
  const SplitImages split_images = open_split(
      config, split, options.single_cls, result.report, options.keep_outlines);
  const std::vector<SplitImage>& images = split_images.images;
  FolderIndex index(index_place(options.kept_in, config, split, options.limits),
                    images);
  DatasetBuilder builder(config, options.single_cls);
  std::optional<ImageLabels> unknown;
  for (const FolderIndex::Chunk* chunk = &index.next(); chunk->size() > 0;
       chunk = &index.next()) {
    std::vector<Examined> examined(chunk->size());
    std::vector<KnownImage> found(chunk->size());
    parallel_for(static_cast<int64_t>(chunk->size()), options.num_threads,
                 [&](int64_t i) {
                   const auto at = static_cast<size_t>(i);
                   examined[at] = examine(images[chunk->begin + at], options,
                                          chunk->known[at], found[at]);
                 });
    for (size_t i = 0; i < chunk->size(); ++i) {
      const std::string_view path = images[chunk->begin + i].path;
      const Examined& image = examined[i];
      add_classes(image.labels.labels, result.report);
      if (!unknown && image.labels.labels.unknown_class) unknown = image.labels;
      if (image.undecodable) result.undecodable.push_back(*image.undecodable);
      if (!report_image(path, image, result.report)) continue;
      builder.add(path, image);
    }
    index.keep(std::move(found));
  }
  for (std::string& note : index.finish()) {
    result.report.notes.push_back(std::move(note));
  }
  refuse_unknown_class(config, unknown ? &*unknown : nullptr, result.report);
  if (result.report.boxes == 0) {
    refuse_empty(config, result.report, images);
  }
  result.dataset = builder.finish();
  return result;
}

std::optional<ImageBoxes> count_boxes(const SplitImage& image,
                                      const codecs::ImageLimits& limits,
                                      const KnownImage* known) {
  codecs::ImageSize size;
  if (image.reader->is_in_pixels()) {
    const std::string path(image.path);
    if (known != nullptr && known->believes_image &&
        known->image == stamp_of(path)) {
      size = known->size;
    } else {
      const auto header = codecs::read_image_size(path, limits);
      if (!header.ok()) return std::nullopt;
      size = header.size;
    }
  }
  KnownImage found;
  const ImageLabels labels = labels_of(image, size, known, found);
  if (labels.fault) return std::nullopt;
  return boxes_of(labels.labels);
}

BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options) {
  DataReport ignored;  // the run's own report lists these faults
  std::vector<std::optional<ImageBoxes>> counts;
  const std::vector<packs::Pack> packs = packs_of(config, split, options);
  if (!packs.empty()) {
    for (const packs::Pack& pack : packs) {
      each_packed_image(config, pack, options, ignored,
                        [&](int64_t, const Examined& image) {
                          counts.emplace_back(boxes_of(image.labels.labels));
                        });
    }
  } else {
    const SplitImages split_images =
        open_split(config, split, options.single_cls, ignored);
    const std::vector<SplitImage>& images = split_images.images;
    counts.resize(images.size());
    // The number of boxes does not depend on bands, so use the index that most
    // models write.
    codecs::ImageLimits limits = options.limits;
    if (limits.bands == codecs::kAnyBands) limits.bands = codecs::kColours;
    FolderIndex index(index_place(options.kept_in, config, split, limits),
                      images, /*is_kept=*/false);
    for (const FolderIndex::Chunk* chunk = &index.next(); chunk->size() > 0;
         chunk = &index.next()) {
      parallel_for(static_cast<int64_t>(chunk->size()), options.num_threads,
                   [&](int64_t i) {
                     const auto at = static_cast<size_t>(i);
                     counts[chunk->begin + at] =
                         count_boxes(images[chunk->begin + at], options.limits,
                                     chunk->known[at]);
                   });
    }
  }
  BoxCounts result;
  for (const auto& image : counts) {
    if (!image) continue;
    result.boxes.push_back(image->boxes);
    result.polygons += image->polygons;
  }
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
