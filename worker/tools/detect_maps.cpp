#include "worker/tools/detect_maps.h"

#include <cstdio>
#include <utility>

#include "parallel/base/binary_record.h"
#include "parallel/base/checksum.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::tools {
namespace {

std::string shown(const std::filesystem::path& file) {
  constexpr size_t kLongestName = 8192;
  return short_line(file.string(), kLongestName);
}

// A digest of the parts' positions, which determine the seams.
int64_t place_digest(const detect::Mosaic& mosaic) {
  RecordWriter parts;
  for (const detect::MosaicPart& part : mosaic.parts) {
    parts.value(static_cast<int64_t>(part.image));
    for (const double place : {part.x, part.y}) parts.value(place);
    for (const int64_t side : {part.height, part.width}) parts.value(side);
  }
  return crc32c(parts.bytes());
}

}  // namespace

DetectedMaps::DetectedMaps(maps::MapApi& api, detect::DetectionFolder& folder,
                           const std::vector<std::string>& class_names,
                           const std::vector<std::filesystem::path>& images,
                           ToolProgress& progress, Options options)
    : images_(images),
      progress_(progress),
      options_(std::move(options)),
      layers_(api, folder, options_.formats, class_names) {
  if (options_.tiles && images_.size() > 1) find_mosaics();
}

void DetectedMaps::find_mosaics() {
  detect::MosaicFinder finder;
  for (size_t i = 0; i < images_.size(); ++i) {
    std::string ignored;  // the reason is reported with the boxes
    if (const auto place = layers_.place_of(images_[i], ignored)) {
      finder.add(i, *place);
    }
    progress_.reach("maps", static_cast<int64_t>(i) + 1,
                    static_cast<int64_t>(images_.size()));
  }
  progress_.clear();
  constexpr int kMostSaid = 5;
  int repeats = 0;
  mosaics_ = finder.find([&](size_t repeat, size_t earlier) {
    if (++repeats > kMostSaid) return;
    std::fprintf(stderr,
                 "%s shows the same place as %s: its boxes are merged with no "
                 "other map's; leave out one of the two to have each object "
                 "once\n",
                 shown(images_[repeat]).c_str(),
                 shown(images_[earlier]).c_str());
  });
  if (repeats > kMostSaid) {
    std::fprintf(stderr, "%s more that show the place of an earlier one\n",
                 counted(repeats - kMostSaid, "map").c_str());
  }
  for (size_t m = 0; m < mosaics_.size(); ++m) {
    for (const detect::MosaicPart& part : mosaics_[m].parts) {
      mosaic_of_[part.image] = m;
    }
  }
}

void DetectedMaps::write(const detect::ImageDetections& found) {
  const std::string why = layers_.add(found);
  if (why.empty()) return;
  progress_.above([&] {
    std::fprintf(stderr, "%s: %s\n", shown(found.image).c_str(), why.c_str());
  });
}

void DetectedMaps::add(size_t index, const detect::ImageDetections& found,
                       detect::TileFindings tiles) {
  const bool is_first = !std::exchange(has_begun_, true);
  if (!mosaic_of_.contains(index)) return write(found);
  // The first image determines a layer's reference system.
  if (is_first) layers_.add({found.image, found.height, found.width, {}});
  unmerged_[index] = std::move(tiles);
}

void DetectedMaps::end_image(size_t index) {
  const auto mosaic = mosaic_of_.find(index);
  if (mosaic != mosaic_of_.end() &&
      mosaics_[mosaic->second].parts.back().image == index) {
    end_mosaic(mosaic->second);
  }
}

void DetectedMaps::look_at_seams(size_t index, const detect::Mosaic& mosaic,
                                 detect::MosaicFindings& findings) {
  findings.seams = detect::seam_tiles(mosaic, *options_.tiles);
  const int64_t place = place_digest(mosaic);
  detect::MosaicReader reader(mosaic, images_, options_.limits);
  for (size_t i = 0; i < findings.seams.size(); ++i) {
    auto found = options_.look(
        {.mosaic = static_cast<int64_t>(index),
         .number = static_cast<int64_t>(i),
         .of = static_cast<int64_t>(findings.seams.size()),
         .height = findings.seams[i].height,
         .width = findings.seams[i].width,
         .place = place,
         .pixels = [&] { return reader.read(findings.seams[i]); }});
    if (!found) break;
    findings.on_seams.push_back(std::move(*found));
  }
  progress_.clear();
}

void DetectedMaps::end_mosaic(size_t index) {
  detect::Mosaic mosaic = mosaics_[index];
  std::erase_if(mosaic.parts, [&](const detect::MosaicPart& part) {
    return !unmerged_.contains(part.image);
  });
  if (mosaic.parts.empty()) return;
  detect::MosaicFindings findings;
  for (const detect::MosaicPart& part : mosaic.parts) {
    findings.parts.push_back(std::move(unmerged_.at(part.image)));
    unmerged_.erase(part.image);
  }
  look_at_seams(index, mosaic, findings);
  const auto boxes = detect::merge_mosaic(mosaic, findings, options_.merge);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const detect::MosaicPart& part = mosaic.parts[i];
    write({images_[part.image], part.height, part.width, boxes[i]});
  }
}

void DetectedMaps::finish() {
  for (size_t m = 0; m < mosaics_.size(); ++m) end_mosaic(m);
  layers_.finish();
}

}  // namespace headroom::tools
