// MapLayers: boxes in GeoTIFFs as the files that geographic programs read,
// predictions.geojson and predictions.gpkg (worker/maps/map_api.h), each
// written whole or not at all.
//
// Errors: Error (exit 5) where a file cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/detect/detection_folder.h"
#include "worker/maps/map_api.h"

namespace headroom::detect {

class MapLayers {
 public:
  struct Formats {
    bool geojson = false;
    bool geopackage = false;
    bool any() const { return geojson || geopackage; }
  };
  // Borrows all three.
  MapLayers(maps::MapApi& api, DetectionFolder& folder, const Formats& formats,
            const std::vector<std::string>& class_names);
  ~MapLayers();

  // Where the image lies on Earth. None: see `reason`.
  std::optional<maps::MapPlace> place_of(const std::filesystem::path& image,
                                         std::string& reason);
  // Returns what of the image's boxes has no coordinates, and why; "": all of
  // them are written.
  std::string add(const ImageDetections& found);
  void finish();

 private:
  struct Layer {
    const char* name;
    bool is_geojson = false;
    std::filesystem::path partial;  // "": it has no file yet
    std::unique_ptr<maps::MapLayerWriter> writer;
  };
  maps::MapLayerWriter& writer_of(Layer& layer);
  // Returns how many boxes have no place in it.
  int64_t write(Layer& layer, const ImageDetections& found);

  maps::MapApi& api_;
  DetectionFolder& folder_;
  const std::vector<std::string>& class_names_;
  std::vector<Layer> layers_;
};

}  // namespace headroom::detect
