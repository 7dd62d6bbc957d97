// C++ owners for GDAL's objects, access to its messages, and the writers of
// layers of boxes. Only this plugin includes GDAL's headers.
#pragma once

#include <cpl_error.h>
#include <gdal.h>
#include <ogr_srs_api.h>

#include <memory>
#include <string>
#include <type_traits>

#include "worker/maps/map_api.h"

namespace headroom::maps {

// Catches GDAL's messages on this thread, which would be printed otherwise, and
// keeps the first failure.
class GdalMessages {
 public:
  GdalMessages();
  ~GdalMessages();
  GdalMessages(const GdalMessages&) = delete;
  GdalMessages& operator=(const GdalMessages&) = delete;

  const std::string& first() const { return first_; }
  // The first failure; `otherwise` if GDAL reported none.
  std::string reason(const std::string& otherwise) const {
    return first_.empty() ? otherwise : first_;
  }

 private:
  static void keep(CPLErr severity, CPLErrorNum number, const char* text);

  std::string first_;
};

struct CloseDataset {
  void operator()(void* dataset) const { GDALClose(dataset); }
};
using Dataset = std::unique_ptr<void, CloseDataset>;

struct DestroyReferenceSystem {
  void operator()(void* system) const { OSRDestroySpatialReference(system); }
};
using ReferenceSystem = std::unique_ptr<void, DestroyReferenceSystem>;

struct DestroyTransformation {
  void operator()(OGRCoordinateTransformationH transformation) const {
    OCTDestroyCoordinateTransformation(transformation);
  }
};
using Transformation =
    std::unique_ptr<std::remove_pointer_t<OGRCoordinateTransformationH>,
                    DestroyTransformation>;

// Coordinates have the easting or longitude first, even if the system's
// definition has another order. Returns nullptr if GDAL does not understand the
// name.
ReferenceSystem reference_system(const std::string& wkt_or_name);

// An upper limit for coordinates of places on Earth. Check it before converting
// a point: GDAL normalises a longitude by subtracting one turn at a time, which
// would take extremely long for larger values.
double farthest_coordinate(OGRSpatialReferenceH system);

std::unique_ptr<MapLayerWriter> make_geojson_layer(std::string& reason);
std::unique_ptr<MapLayerWriter> make_geopackage_layer(const std::string& file,
                                                      std::string& reason);

}  // namespace headroom::maps
