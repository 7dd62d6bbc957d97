#include "worker/detect/map_layers.h"

#include <cerrno>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTurned = "its pixels are stored turned or mirrored";

[[noreturn]] void refuse_to_write(const fs::path& file,
                                  const std::string& why) {
  throw Error(
      "detect", file.string() + " cannot be written: " + short_line(why, 200),
      "make room, or choose another place: --project DIR", ExitCode::kResource);
}

}  // namespace

MapLayers::MapLayers(maps::MapApi& api, DetectionFolder& folder,
                     const Formats& formats,
                     const std::vector<std::string>& class_names)
    : api_(api), folder_(folder), class_names_(class_names) {
  if (formats.geojson) {
    layers_.push_back({"predictions.geojson", /*is_geojson=*/true, {}, {}});
  }
  if (formats.geopackage) {
    layers_.push_back({"predictions.gpkg", /*is_geojson=*/false, {}, {}});
  }
}

// Removes files that were not completed.
MapLayers::~MapLayers() {
  for (Layer& layer : layers_) {
    layer.writer.reset();
    std::error_code ignored;
    if (!layer.partial.empty()) fs::remove(layer.partial, ignored);
  }
}

maps::MapLayerWriter& MapLayers::writer_of(Layer& layer) {
  if (layer.writer) return *layer.writer;
  std::string reason;
  if (layer.is_geojson) {
    layer.writer = api_.make_geojson(reason);
  } else {
    layer.partial = folder_.place_of(std::string(layer.name) + kPartialSuffix);
    // Remove the files that SQLite left when an earlier run was killed.
    for (const char* suffix : {"-journal", "-wal", "-shm"}) {
      std::error_code ignored;
      fs::remove(layer.partial.string() + suffix, ignored);
    }
    layer.writer = api_.make_geopackage(layer.partial.string(), reason);
  }
  if (!layer.writer) refuse_to_write(layer.name, reason);
  return *layer.writer;
}

int64_t MapLayers::write(Layer& layer, const ImageDetections& found) {
  int64_t without_place = 0;
  for (const metrics::Detection& one : found.detections) {
    const auto written = layer.writer->write(
        {.x1 = one.box.x1,
         .y1 = one.box.y1,
         .x2 = one.box.x2,
         .y2 = one.box.y2,
         .class_index = one.class_index,
         .class_name = class_names_.at(static_cast<size_t>(one.class_index)),
         .confidence = one.confidence,
         .image = found.image.string()});
    if (!written.fault.empty()) refuse_to_write(layer.name, written.fault);
    without_place += written.has_place ? 0 : 1;
  }
  return without_place;
}

std::optional<maps::MapPlace> MapLayers::place_of(const fs::path& image,
                                                  std::string& reason) {
  auto place = api_.place_of(image.string(), reason);
  // GDAL gives the position of the stored picture, but boxes are in pixels of
  // the upright picture.
  if (place && !codecs::inspect_streamed(
                    image, {.bands = codecs::kAnyBands, .as_stored = true})
                    .is_upright) {
    reason = kTurned;
    place.reset();
  }
  return place;
}

std::string MapLayers::add(const ImageDetections& found) {
  std::string reason;
  auto place = place_of(found.image, reason);
  if (place && (place->height != found.height || place->width != found.width)) {
    reason = kTurned;
    place.reset();
  }
  if (!place) return "it has no coordinates: " + reason;
  std::string left_out;
  for (Layer& layer : layers_) {
    const std::string to =
        std::string(left_out.empty() ? "" : "; ") + layer.name + " lacks ";
    if (const std::string why = writer_of(layer).begin(*place); !why.empty()) {
      left_out += to + "its boxes: " + why;
    } else if (const int64_t count = write(layer, found); count > 0) {
      left_out += to + counted(count, "box") +
                  ", beyond the bounds of its coordinate reference system";
    }
  }
  return left_out;
}

void MapLayers::finish() {
  for (Layer& layer : layers_) {
    const fs::path place = folder_.place_of(layer.name);
    std::string bytes;
    const std::string why = writer_of(layer).finish(bytes);
    if (!why.empty()) refuse_to_write(place, why);
    if (layer.is_geojson) {
      write_whole_file(place, bytes);
      continue;
    }
    std::error_code error;
    // SQLite would read the old -wal file as a part of the new database.
    if (fs::file_size(place.string() + "-wal", error) > 0 && !error) {
      refuse_to_write(place, "another program has it open");
    }
    fs::rename(layer.partial, place, error);
    if (error) refuse_to_write(place, error.message());
    layer.partial.clear();
    if (!sync_folder(place.parent_path())) {
      refuse_to_write(place, std::system_category().message(errno));
    }
  }
}

}  // namespace headroom::detect
