// MapLayers: writes boxes that were found in GeoTIFFs as predictions.geojson
// and predictions.gpkg, for geographic programs (worker/maps/map_api.h). Each
// file is complete or does not exist.
//
// Errors: Error (exit 5) if a file cannot be written.
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
  // Keeps references to `api`, `folder` and `class_names`.
  MapLayers(maps::MapApi& api, DetectionFolder& folder, const Formats& formats,
            const std::vector<std::string>& class_names);
  ~MapLayers();

  // The image's position on Earth; nullopt with a `reason` if the image has no
  // position.
  std::optional<maps::MapPlace> place_of(const std::filesystem::path& image,
                                         std::string& reason);
  // Writes the image's boxes. Returns a text with the number of boxes without
  // coordinates and the reason; "" if all were written.
  std::string add(const ImageDetections& found);
  void finish();

 private:
  struct Layer {
    const char* name;
    bool is_geojson = false;
    std::filesystem::path partial;  // the unfinished file; "" before it exists
    std::unique_ptr<maps::MapLayerWriter> writer;
  };
  maps::MapLayerWriter& writer_of(Layer& layer);
  // Returns the number of boxes without coordinates.
  int64_t write(Layer& layer, const ImageDetections& found);

  maps::MapApi& api_;
  DetectionFolder& folder_;
  const std::vector<std::string>& class_names_;
  std::vector<Layer> layers_;
};

}  // namespace headroom::detect
