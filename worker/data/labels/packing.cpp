#include "worker/data/labels/packing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/parallel_for.h"
#include "parallel/base/units.h"
#include "worker/data/packs/pack_writer.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// Images that are read at once.
constexpr int64_t kChunk = 64;

fs::path folder_of(const configs::DataConfig& config) {
  return fs::absolute(config.file).lexically_normal().parent_path();
}

// What would be found only after gigabytes were written is looked for first.
std::vector<std::string> names_of(const Dataset& dataset,
                                  const fs::path& folder) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  int64_t too_long = 0;
  fs::path longest;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const fs::path path = dataset.path(i);
    names.push_back(packed_name(path, folder));
    if (!taken.insert(names.back()).second) {
      throw Error("pack",
                  "two images would have the name " + names.back() +
                      " in the packs, one of them " + path.string(),
                  "put the data file into a folder above all its images");
    }
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (!error && bytes > packs::kMostFileBytes && too_long++ == 0) {
      longest = path;
    }
  }
  if (too_long > 0) {
    throw Error(
        "pack",
        counted(too_long, "image") + " of more than " +
            format_bytes(static_cast<int64_t>(packs::kMostFileBytes)) +
            ", first " + longest.string(),
        "cut such images with headroom tile first, or train on the files");
  }
  return names;
}

std::vector<uint8_t> bytes_of(const fs::path& image) {
  try {
    return codecs::ImageFile(image, packs::kMostFileBytes).read_all();
  } catch (const codecs::ImageRefusal& refusal) {
    throw Error("pack", image.string() + ": " + refusal.what(),
                "replace it and start again; nothing was written",
                ExitCode::kData);
  }
}

// An image's labels as an index has them, and as text.
struct LabelsToPack {
  std::vector<packs::PackedBox> boxes;
  std::vector<uint64_t> point_ends;
  std::vector<packs::PackedPoint> points;
  std::string text;
};

LabelsToPack labels_to_pack(const Dataset& dataset, int64_t image,
                            bool with_outlines) {
  LabelsToPack result;
  const std::span<const BoxLabel> boxes = dataset.labels(image);
  const Outlines outlines = dataset.outlines(image);
  std::vector<Outline> lines;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxLabel& box = boxes[i];
    result.boxes.push_back({box.class_index, box.cx, box.cy, box.w, box.h});
    if (!with_outlines) continue;
    Outline& line = lines.emplace_back();
    for (const IndexedPoint& point : outlines.of(i)) {
      result.points.push_back(point);
      line.push_back({point[0], point[1]});
    }
    result.point_ends.push_back(result.points.size());
  }
  result.text = label_text(boxes, lines);
  return result;
}

void write_packs(const Dataset& dataset, const fs::path& data_folder,
                 const fs::path& to, const PackingRequest& request,
                 PackedSplit& split) {
  const std::vector<std::string> names = names_of(dataset, data_folder);
  const bool with_outlines = dataset.num_polygons() > 0;
  packs::PackWriter writer(to, split.report.split, request.shard_bytes);
  std::vector<std::vector<uint8_t>> files(kChunk);
  for (int64_t begin = 0; begin < dataset.size(); begin += kChunk) {
    if (request.stopped && request.stopped()) {
      throw Error("pack", "interrupted; nothing was written", "start it again",
                  ExitCode::kInterrupted);
    }
    const int64_t count = std::min(kChunk, dataset.size() - begin);
    parallel_for(count, request.index.num_threads, [&](int64_t i) {
      files[static_cast<size_t>(i)] = bytes_of(dataset.path(begin + i));
    });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t image = begin + i;
      const fs::path path = dataset.path(image);
      const std::vector<uint8_t>& bytes = files[static_cast<size_t>(i)];
      const LabelsToPack labels = labels_to_pack(dataset, image, with_outlines);
      const codecs::ImageSize size = dataset.image_size(image);
      writer.add(
          {.name = names[static_cast<size_t>(image)],
           .bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
           .height = size.height,
           .width = size.width,
           .has_colours = codecs::read_samples(path).are_colours,
           .labels = {labels.boxes, labels.point_ends, labels.points},
           .label_text = labels.text});
      if (request.index.image_done) {
        request.index.image_done(split.report.split, dataset.size());
      }
    }
  }
  writer.finish();
  split.shards = writer.num_shards();
  split.bytes = writer.total_bytes();
}

}  // namespace

std::string packed_name(const fs::path& image, const fs::path& data_folder) {
  fs::path name;
  for (const fs::path& part : image.lexically_relative(data_folder)) {
    if (part != "..") name /= part;
  }
  return name.string();
}

std::vector<PackedSplit> pack_data(const configs::DataConfig& config,
                                   const PackingRequest& request) {
  NewFolder folder(request.output, "pack", "--output");
  std::vector<PackedSplit> splits;
  std::string yaml = "names: " + nlohmann::json(config.names).dump() + "\n";
  std::vector<Split> wanted = {Split::kTrain, Split::kVal};
  if (!config.test.empty()) wanted.push_back(Split::kTest);
  IndexOptions options = request.index;
  options.keep_outlines = true;
  options.limits.bands = codecs::kAnyBands;
  for (const Split split : wanted) {
    PackedSplit& packed = splits.emplace_back();
    packed.report.split = split_name(split);
    IndexedDataset indexed;
    try {
      indexed = index_dataset(config, split, options);
    } catch (const Error& error) {
      // Published sets have test images without labels.
      if (split != Split::kTest) throw;
      packed.refusal = error.text();
      continue;
    }
    packed.report = std::move(indexed.report);
    write_packs(indexed.dataset, folder_of(config), folder.place_of(""),
                request, packed);
    yaml += packed.report.split + ": " +
            packs::index_name(packed.report.split) + "\n";
  }
  folder.write("data.yaml", yaml);
  folder.finish();
  return splits;
}

std::string packing_text(const std::vector<PackedSplit>& splits,
                         const fs::path& output) {
  std::string text;
  for (const PackedSplit& split : splits) {
    const DataReport& report = split.report;
    if (!split.refusal.empty()) {
      text += report.split + ": not packed: " + split.refusal + "\n";
      continue;
    }
    for (const std::string& line : report.lines(kMaxDataFaults)) {
      text += line + "\n";
    }
    text += report.split + ": " + counted(report.images, "image") + " with " +
            counted(report.boxes, "box") + " in " +
            counted(split.shards, "pack") + ", " +
            format_bytes(static_cast<int64_t>(split.bytes)) + "\n";
  }
  return text + "next: headroom train --data " + output.string() + "\n";
}

std::string packing_json(const std::vector<PackedSplit>& splits,
                         const fs::path& output) {
  nlohmann::ordered_json json = {{"data", (output / "data.yaml").string()}};
  json["splits"] = nlohmann::ordered_json::array();
  for (const PackedSplit& split : splits) {
    nlohmann::ordered_json entry = {
        {"split", split.report.split}, {"images", split.report.images},
        {"boxes", split.report.boxes}, {"packs", split.shards},
        {"bytes", split.bytes},        {"refusal", split.refusal}};
    entry["faults"] = nlohmann::ordered_json::array();
    for (const DataFault& fault : split.report.faults) {
      entry["faults"].push_back(to_string(fault));
    }
    json["splits"].push_back(std::move(entry));
  }
  // File names may be in any encoding.
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace headroom::labels
