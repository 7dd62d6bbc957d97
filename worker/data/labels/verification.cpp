#include "worker/data/labels/verification.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/labels/measured_range.h"
#include "worker/data/labels/parallel_for.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct ExaminedImage {
  ImageVerdict verdict;
  DataFaultKind kind = DataFaultKind::kUnreadableImage;
  ImageLabels labels;
};

ExaminedImage examine_fully(const SplitImage& image,
                            const IndexOptions& options) {
  ExaminedImage result;
  result.verdict.image = image.path;
  codecs::ImageLimits limits = options.limits;
  limits.bands = codecs::kAnyBands;
  const codecs::ImageResult decoded = codecs::decode_image(image.path, limits);
  result.verdict.reason = decoded.reason;
  if (!decoded.ok()) {
    // The objects of an unusable image are counted, not used.
    const auto header = codecs::read_image_size(image.path, limits);
    if (header.ok() || !image.reader->is_in_pixels()) {
      result.labels.labels.objects = image.labels(header.size).labels.objects;
    }
    return result;
  }
  result.verdict.size = decoded.size;
  result.verdict.samples = codecs::read_samples(image.path);
  result.labels = image.labels(decoded.size);
  result.verdict.boxes = result.labels.labels.boxes;
  if (options.keep_outlines) {
    result.verdict.outlines = std::move(result.labels.labels.outlines);
  }
  result.labels.labels.outlines = {};
  if (result.labels.fault) result.verdict.reason = result.labels.fault->what;
  return result;
}

void add_to(VerifiedSplit& split, ExaminedImage& examined,
            const configs::DataConfig& config) {
  DataReport& report = split.report;
  const ImageVerdict& verdict = examined.verdict;
  const LabelFile& labels = examined.labels.labels;
  if (add_image(verdict.image.native(), verdict.reason, examined.labels,
                report)) {
    ++split.images_by_samples[verdict.samples];
  }
  if (const auto& unknown = labels.unknown_class) {
    report.add(
        {DataFaultKind::kBadClass,
         cat(examined.labels.file, ":", unknown->line),
         "class " + unknown->class_name + ", but " + config.file.string() +
             " names " +
             counted(static_cast<int64_t>(config.names.size()), "class") +
             ": " + first_names(config.names),
         "training is refused: complete names, or correct the label"});
    if (split.refusal.empty()) split.refusal = "labels have unknown classes";
  }
  split.images.push_back(std::move(examined.verdict));
}

// Reports damage of shards outside the images' bytes, because other programs
// read the archives too.
void check_shards(const configs::DataConfig& config, Split split,
                  DataReport& report) {
  for (const fs::path& source : split_sources(config, split)) {
    if (!is_packed({source})) continue;
    const auto index = packs::read_pack(source).index;
    for (uint32_t i = 0; i < index->num_shards(); ++i) {
      const std::string damage = index->shard_damage(i);
      if (damage.empty()) continue;
      report.add({DataFaultKind::kUnreadableImage, index->shard(i).string(),
                  damage, "each of its images is judged by itself"});
    }
  }
}

std::vector<fs::path> sound_images(const VerifiedSplit& split) {
  std::vector<fs::path> images;
  for (const ImageVerdict& verdict : split.images) {
    if (verdict.reason.empty()) images.push_back(verdict.image);
  }
  return images;
}

VerifiedSplit verify_split(const configs::DataConfig& config, Split split,
                           const IndexOptions& options) {
  const std::string name = split_name(split);
  VerifiedSplit result;
  result.report.split = name;
  const SplitImages images = open_split(config, split, options.single_cls,
                                        result.report, options.keep_outlines);
  check_shards(config, split, result.report);
  std::vector<ExaminedImage> examined(images.images.size());
  parallel_for(static_cast<int64_t>(examined.size()), options.num_threads,
               [&](int64_t i) {
                 const auto at = static_cast<size_t>(i);
                 examined[at] = examine_fully(images.images[at], options);
                 if (options.image_done) {
                   options.image_done(name,
                                      static_cast<int64_t>(examined.size()));
                 }
               });
  for (ExaminedImage& one : examined) add_to(result, one, config);
  const std::string deep = note_on_deep_images(
      sound_images(result), config.range
                                ? "read with " + configs::to_yaml(*config.range)
                                : "reduced to 8");
  if (!deep.empty()) result.report.notes.push_back(name + ": " + deep);
  const DataReport& report = result.report;
  const bool from_one =
      report.counts_classes_from_one(static_cast<int64_t>(config.names.size()));
  if (!result.refusal.empty() && from_one) {
    result.refusal +=
        cat(": they count classes from 1, for class ", report.largest_class,
            " is in ", counted(report.files_of_unknown_classes, "label file"),
            " and class 0 in none");
  }
  if (result.refusal.empty() && (report.images == 0 || report.boxes == 0)) {
    const Error error = empty_split(config, report, images.images);
    result.refusal = error.text();
    result.remedy = error.remedy();
  }
  return result;
}

// The values of `ch` with which a model reads images with these samples.
std::string channels_text(const codecs::ImageSamples& samples) {
  std::vector<std::string> channels;
  if (samples.are_colours) channels = {std::to_string(codecs::kColours), "1"};
  for (const int own : {samples.bands, samples.with_alpha}) {
    const std::string text = std::to_string(own);
    const bool is_known = std::ranges::find(channels, text) != channels.end();
    if (!is_known && own > 1) channels.push_back(text);
  }
  return "ch: " + either_of(channels);
}

// One line about the bands of the images; "" if all images have only colours.
std::string text_of_bands(const VerifiedSplit& split) {
  std::string text;
  for (const auto& [samples, images] : split.images_by_samples) {
    if (!text.empty()) text += ", ";
    text += counted(images, "image") + (images == 1 ? " has " : " have ") +
            (samples.bands == codecs::kColours ? "colours"
                                               : cat(samples.bands, " bands")) +
            (samples.with_alpha > 0 ? " and alpha" : "") + " (" +
            channels_text(samples) + ")";
  }
  const bool has_colours_alone =
      split.images_by_samples.size() == 1 &&
      split.images_by_samples.contains(codecs::ImageSamples{});
  if (text.empty() || has_colours_alone) return "";
  return split.report.split + ": " + text +
         "; training leaves out what its model does not read\n";
}

// Splits "file:12" into file and line. The line is 0 if there is none.
std::pair<std::string, int64_t> file_and_line(const std::string& where) {
  const size_t colon = where.rfind(':');
  if (colon == std::string::npos) return {where, 0};
  const auto line = parse_whole(where.substr(colon + 1));
  if (!line) return {where, 0};
  return {where.substr(0, colon), *line};
}

OrderedJson fault_json(const DataFault& fault) {
  const auto [file, line] = file_and_line(fault.where);
  OrderedJson json = {{"kind", to_string(fault.kind)}, {"file", file}};
  if (line > 0) json["line"] = line;
  json["what"] = fault.what;
  json["fix"] = fault.fix;
  return json;
}

// Copies an image byte for byte, also from a pack.
void copy_image(const NewFolder& copy, const fs::path& image,
                const fs::path& file) {
  refuse_page(image, "verify");
  const auto packed = packs::read_packed(image);
  if (!packed) return copy.copy(image, file);
  if (!packed->error.empty()) {
    throw Error("verify", image.string() + ": " + packed->error, "start again",
                ExitCode::kData);
  }
  copy.write(file, {reinterpret_cast<const char*>(packed->bytes.data()),
                    packed->bytes.size()});
}

}  // namespace

std::vector<VerifiedSplit> verify_data(const configs::DataConfig& config,
                                       const IndexOptions& given) {
  IndexOptions options = given;
  // Which images can be read does not depend on the range of values. So if the
  // range is still to be measured, a default one is used here.
  if (config.range) {
    options.limits.ranges = config.range->is_measured()
                                ? ValueRanges{ValueRange()}
                                : config.range->ranges;
  }
  std::vector<VerifiedSplit> splits;
  for (const Split split : named_splits(config)) {
    splits.push_back(verify_split(config, split, options));
  }
  return splits;
}

void write_corrected_copy(const std::vector<VerifiedSplit>& splits,
                          const std::vector<std::string>& class_names,
                          const fs::path& folder, const std::string& range) {
  NewFolder copy(folder, "verify", "--fix-to");
  std::vector<std::string> names;
  for (const VerifiedSplit& split : splits) {
    const std::string& name = split.report.split;
    const fs::path images = fs::path("images") / name;
    const fs::path labels = fs::path("labels") / name;
    copy.make(images);
    copy.make(labels);
    names.push_back(name);
    std::set<std::string> taken;
    for (const ImageVerdict& verdict : split.images) {
      if (!verdict.reason.empty()) continue;
      const std::string stem = unique_stem(verdict.image, taken);
      copy_image(copy, verdict.image,
                 images / (stem + verdict.image.extension().string()));
      copy.write(labels / (stem + ".txt"),
                 label_text(verdict.boxes, verdict.outlines));
    }
  }
  copy.write("data.yaml", data_yaml_text(class_names, names, range));
  copy.finish();
}

std::string verification_text(const std::vector<VerifiedSplit>& splits,
                              bool all) {
  std::string text;
  for (const VerifiedSplit& split : splits) {
    for (const std::string& line : split.report.lines(kMaxDataFaults)) {
      text += line + "\n";
    }
    for (const std::string& line : split.report.remedies()) {
      text += line + "\n";
    }
    text += text_of_bands(split);
    for (const ImageVerdict& verdict : split.images) {
      if (!all) break;
      text +=
          verdict.image.string() + ": " +
          (verdict.reason.empty()
               ? cat("sound, ", verdict.size.width, " x ", verdict.size.height,
                     ", ",
                     counted(static_cast<int64_t>(verdict.boxes.size()), "box"))
               : verdict.reason) +
          "\n";
    }
    if (!split.refusal.empty()) {
      text += split.report.split + ": training is refused: " + split.refusal +
              (split.remedy.empty() ? "" : ": " + split.remedy) + "\n";
    }
  }
  return text;
}

std::string verification_json(const std::vector<VerifiedSplit>& splits) {
  OrderedJson json;
  int64_t num_faults = 0;
  json["splits"] = OrderedJson::array();
  for (const VerifiedSplit& split : splits) {
    const DataReport& report = split.report;
    num_faults += report.num_faults();
    OrderedJson entry = {
        {"split", report.split},           {"images", report.images},
        {"background", report.background}, {"boxes", report.boxes},
        {"objects", report.objects},       {"crowds", report.crowds},
        {"dropped", report.dropped},       {"left_out", report.left_out},
        {"notes", report.notes},           {"refusal", split.refusal}};
    entry["faults"] = OrderedJson::array();
    for (const DataFault& fault : report.faults) {
      entry["faults"].push_back(fault_json(fault));
    }
    entry["verdicts"] = OrderedJson::array();
    for (const ImageVerdict& verdict : split.images) {
      OrderedJson one = {
          {"file", verdict.image.string()},
          {"verdict", verdict.reason.empty() ? "sound" : "left out"}};
      if (verdict.reason.empty()) {
        one["width"] = verdict.size.width;
        one["height"] = verdict.size.height;
        one["bands"] = verdict.samples.bands;
        one["boxes"] = verdict.boxes.size();
      } else {
        one["reason"] = verdict.reason;
      }
      entry["verdicts"].push_back(std::move(one));
    }
    json["splits"].push_back(std::move(entry));
  }
  json["faults"] = num_faults;
  // File names may be in any encoding.
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace headroom::labels
