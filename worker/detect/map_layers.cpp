#include "worker/detect/map_layers.h"

#include <optional>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using maps::MapLayerFormat;

[[noreturn]] void refuse_to_write(const fs::path& file,
                                  const std::string& why) {
  throw Error("detect", file.string() + " cannot be written: " + why,
              "make room, or choose another place: --project DIR",
              ExitCode::kResource);
}

// GDAL knows a picture as it is stored, and boxes lie in the upright one.
bool is_stored_upright(const fs::path& image) {
  bool upright = true;
  codecs::read_image_rows(image, {.bands = codecs::kAnyBands},
                          [&upright](codecs::ScanlineReader& rows) {
                            upright = rows.header().orientation == 1;
                          });
  return upright;
}

}  // namespace

MapLayers::MapLayers(maps::MapApi& api, DetectionFolder& folder,
                     const Formats& formats,
                     const std::vector<std::string>& class_names)
    : api_(api), folder_(folder), class_names_(class_names) {
  if (formats.geojson) {
    layers_.push_back(
        {MapLayerFormat::kGeoJson, "predictions.geojson", {}, {}});
  }
  if (formats.geopackage) {
    layers_.push_back(
        {MapLayerFormat::kGeoPackage, "predictions.gpkg", {}, {}});
  }
}

// What was not finished is removed.
MapLayers::~MapLayers() {
  for (Layer& layer : layers_) {
    if (!layer.writer) continue;
    layer.writer.reset();
    std::error_code ignored;
    fs::remove(layer.partial, ignored);
  }
}

maps::MapLayerWriter& MapLayers::writer_of(Layer& layer) {
  if (layer.writer) return *layer.writer;
  layer.partial = folder_.place_of(std::string(layer.name) + kPartialSuffix);
  std::string reason;
  layer.writer = api_.create(layer.partial.string(), layer.format, reason);
  if (!layer.writer) refuse_to_write(layer.partial, reason);
  return *layer.writer;
}

std::string MapLayers::add(const ImageDetections& found) {
  std::string reason;
  const auto place = api_.place_of(found.image.string(), reason);
  if (!place) return reason;
  if (!is_stored_upright(found.image) || place->height != found.height ||
      place->width != found.width) {
    return "its pixels are stored turned or mirrored";
  }
  for (Layer& layer : layers_) {
    maps::MapLayerWriter& writer = writer_of(layer);
    for (const metrics::Detection& one : found.detections) {
      const std::string why = writer.write(
          *place,
          {.x1 = one.box.x1,
           .y1 = one.box.y1,
           .x2 = one.box.x2,
           .y2 = one.box.y2,
           .class_index = one.class_index,
           .class_name = class_names_.at(static_cast<size_t>(one.class_index)),
           .confidence = one.confidence,
           .image = found.image.filename().string()});
      if (!why.empty()) refuse_to_write(layer.partial, why);
    }
  }
  return "";
}

void MapLayers::finish() {
  for (Layer& layer : layers_) {
    const std::string why = writer_of(layer).finish();
    if (!why.empty()) refuse_to_write(layer.partial, why);
    const fs::path place = folder_.place_of(layer.name);
    std::error_code error;
    fs::rename(layer.partial, place, error);
    if (error) refuse_to_write(place, error.message());
    layer.writer.reset();
    sync_folder(place.parent_path());
  }
}

}  // namespace headroom::detect
