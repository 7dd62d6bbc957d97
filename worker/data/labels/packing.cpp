#include "worker/data/labels/packing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/units.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/parallel_for.h"
#include "worker/data/packs/pack_index.h"
#include "worker/data/packs/pack_writer.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const configs::DataConfig& config) {
  return fs::absolute(config.file).lexically_normal().parent_path();
}

// Names of an image and of its labels inside the archives.
struct MemberNames {
  std::string image, labels;
};

std::vector<MemberNames> names_of(const Dataset& dataset,
                                  const fs::path& folder) {
  std::vector<MemberNames> names;
  std::set<std::string> taken;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const fs::path path = dataset.path(i);
    refuse_page(path, "pack");
    names.push_back({packed_name(path, folder), ""});
    if (taken.insert(names.back().image).second) continue;
    throw Error("pack",
                "two images would have the name " + names.back().image +
                    " in the packs, one of them " + path.string(),
                "put the data file into a folder above all its images");
  }
  for (MemberNames& name : names) {
    name.labels = fs::path(name.image).replace_extension(".txt").string();
    // An a.png beside an a.jpg needs a label file with another name.
    if (!taken.insert(name.labels).second) name.labels = name.image + ".txt";
  }
  return names;
}

// Checks the lengths of all images first, so that an image that is too long is
// reported before gigabytes have been written.
std::vector<uint64_t> lengths_of(const Dataset& dataset, int64_t num_threads) {
  std::vector<uint64_t> lengths(static_cast<size_t>(dataset.size()));
  parallel_for(dataset.size(), num_threads, [&](int64_t i) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(dataset.path(i), error);
    lengths[static_cast<size_t>(i)] = error ? 0 : bytes;
  });
  const auto is_too_long = [](uint64_t bytes) {
    return bytes > packs::kMostFileBytes;
  };
  const auto first = std::ranges::find_if(lengths, is_too_long);
  if (first == lengths.end()) return lengths;
  throw Error(
      "pack",
      counted(std::ranges::count_if(lengths, is_too_long), "image") +
          " of more than " +
          format_bytes(static_cast<int64_t>(packs::kMostFileBytes)) +
          ", first " + dataset.path(first - lengths.begin()).string(),
      "cut such images with headroom tile first, or train on the files");
}

struct ImageToPack {
  std::vector<uint8_t> bytes;
  bool has_colours = true;
};

ImageToPack read_image(const fs::path& path) {
  try {
    return {codecs::ImageFile(path, packs::kMostFileBytes).read_all(),
            codecs::read_samples(path).are_colours};
  } catch (const codecs::ImageRefusal& refusal) {
    throw Error("pack", path.string() + ": " + refusal.what(),
                "replace it and start again; nothing was written",
                ExitCode::kData);
  }
}

// The labels of an image, both as stored in an index and as text.
struct LabelsToPack {
  packs::IndexedLabels stored;
  std::string text;
};

LabelsToPack labels_to_pack(const Dataset& dataset, int64_t image) {
  LabelsToPack result;
  const std::span<const BoxLabel> boxes = dataset.labels(image);
  const Outlines outlines = dataset.outlines(image);
  std::vector<Outline> lines(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxLabel& box = boxes[i];
    const auto points = outlines.of(i);
    result.stored.boxes.push_back({box.class_index, box.cx, box.cy, box.w,
                                   box.h,
                                   static_cast<uint32_t>(points.size())});
    for (const IndexedPoint& point : points) {
      result.stored.points.push_back(point);
      lines[i].push_back({point[0], point[1]});
    }
  }
  result.text = label_text(boxes, lines);
  return result;
}

// The end of the group of images, beginning at `begin`, that are read into
// memory together.
int64_t end_of_chunk(const std::vector<uint64_t>& lengths, int64_t begin) {
  constexpr int64_t kMostImages = 64;
  uint64_t bytes = 0;
  int64_t end = begin;
  const auto size = static_cast<int64_t>(lengths.size());
  while (end < size && end - begin < kMostImages) {
    bytes += lengths[static_cast<size_t>(end)];
    if (end > begin && bytes > 4 * packs::kMostFileBytes) break;
    ++end;
  }
  return end;
}

void write_packs(const Dataset& dataset, const fs::path& data_folder,
                 const fs::path& to, const PackingRequest& request,
                 PackedSplit& split) {
  const std::vector<MemberNames> names = names_of(dataset, data_folder);
  const std::vector<uint64_t> lengths =
      lengths_of(dataset, request.index.num_threads);
  packs::PackWriter writer(to, split.report.split, request.shard_bytes);
  for (int64_t begin = 0; begin < dataset.size();) {
    if (request.stopped && request.stopped()) {
      throw Error("pack", "interrupted; nothing was written", "start it again",
                  ExitCode::kInterrupted);
    }
    const int64_t end = end_of_chunk(lengths, begin);
    std::vector<ImageToPack> images(static_cast<size_t>(end - begin));
    parallel_for(end - begin, request.index.num_threads, [&](int64_t i) {
      images[static_cast<size_t>(i)] = read_image(dataset.path(begin + i));
    });
    for (const ImageToPack& image : images) {
      const LabelsToPack labels = labels_to_pack(dataset, begin);
      const codecs::ImageSize size = dataset.image_size(begin);
      const MemberNames& name = names[static_cast<size_t>(begin)];
      writer.add({.name = name.image,
                  .bytes = {reinterpret_cast<const char*>(image.bytes.data()),
                            image.bytes.size()},
                  .height = size.height,
                  .width = size.width,
                  .has_colours = image.has_colours,
                  .labels = {labels.stored.boxes, labels.stored.points},
                  .label_name = name.labels,
                  .label_text = labels.text});
      if (request.index.image_done) {
        request.index.image_done(split.report.split, dataset.size());
      }
      ++begin;
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
  std::string yaml = "names: " + nlohmann::json(config.names).dump() + "\n" +
                     configs::range_line(config.range);
  IndexOptions options = request.index;
  options.keep_outlines = true;
  options.limits.bands = codecs::kAnyBands;
  options.limits.as_stored = config.range.has_value();
  for (const Split split : named_splits(config)) {
    PackedSplit& packed = splits.emplace_back();
    packed.report.split = split_name(split);
    IndexedDataset indexed;
    try {
      indexed = index_dataset(config, split, options);
    } catch (const Error& error) {
      // Published data sets often have test images without labels.
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
