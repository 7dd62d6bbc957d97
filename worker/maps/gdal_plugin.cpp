// The exported function of libheadroom_maps.so, and the MapApi that it returns.
#include <cpl_conv.h>
#include <gdal_frmts.h>
#include <ogr_api.h>
#include <ogrsf_frmts.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include "worker/maps/gdal_layer.h"
#include "worker/maps/gdal_points.h"

namespace headroom::maps {
namespace {

// Whether the text has only letters, digits, '_', '-' and '.', without the '/'
// and ':' of paths and addresses.
bool is_word(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// Returns false if the projected or the geographic part of the system has an
// authority code that is registered for another kind of system. PROJ 9.1 looks
// codes up, and crashes on such a code in the geographic part.
bool has_codes_of_its_kind(OGRSpatialReferenceH system) {
  const auto is_right = [system](const char* part, auto is_kind) {
    const char* const authority = OSRGetAuthorityName(system, part);
    const char* const code = OSRGetAuthorityCode(system, part);
    if (authority == nullptr || code == nullptr) return true;
    if (!is_word(authority) || !is_word(code)) return false;
    const ReferenceSystem registered =
        reference_system(std::string(authority) + ":" + code);
    return registered == nullptr || is_kind(registered.get()) != 0;
  };
  return is_right("PROJCS", OSRIsProjected) &&
         is_right("GEOGCS", OSRIsGeographic);
}

class Gdal final : public MapApi {
 public:
  std::optional<MapPlace> place_of(const std::string& file,
                                   std::string& reason) override {
    const GdalMessages messages;
    // Only this driver is allowed: others may open further files and network
    // addresses that a file names.
    const char* const drivers[] = {"GTiff", nullptr};
    // Ignore files that accompany a GeoTIFF (.aux.xml, .tfw), because tiles
    // copy only its tags.
    const char* const options[] = {"GEOREF_SOURCES=INTERNAL", nullptr};
    const Dataset dataset(GDALOpenEx(file.c_str(),
                                     GDAL_OF_RASTER | GDAL_OF_READONLY, drivers,
                                     options, nullptr));
    if (dataset == nullptr) {
      reason = "it is no GeoTIFF";
      return std::nullopt;
    }
    MapPlace place;
    place.height = GDALGetRasterYSize(dataset.get());
    place.width = GDALGetRasterXSize(dataset.get());
    if (GDALGetGeoTransform(dataset.get(), place.transform.data()) != CE_None ||
        !std::ranges::all_of(place.transform,
                             [](double v) { return std::isfinite(v); })) {
      reason = "its tags give its pixels no coordinates";
      return std::nullopt;
    }
    const OGRSpatialReferenceH system = GDALGetSpatialRef(dataset.get());
    char* wkt = nullptr;
    if (system == nullptr) {
      reason = "its tags name no coordinate reference system";
      return std::nullopt;
    }
    if (!has_codes_of_its_kind(system)) {
      reason = "the codes of its coordinate reference system contradict it";
      return std::nullopt;
    }
    const char* const newest[] = {"FORMAT=WKT2_2019", nullptr};
    if (OSRExportToWktEx(system, &wkt, newest) == OGRERR_NONE) {
      place.reference_system = wkt;
    }
    CPLFree(wkt);
    if (!place.reference_system.empty()) return place;
    reason = "its coordinate reference system is not understood";
    return std::nullopt;
  }

  std::unique_ptr<MapPoints> points_in(const std::string& system,
                                       const MapPlace& place,
                                       std::string& reason) override {
    return points_of_picture(system, place, reason);
  }

  std::unique_ptr<MapLayerWriter> make_geojson(std::string& reason) override {
    return make_geojson_layer(reason);
  }
  std::unique_ptr<MapLayerWriter> make_geopackage(
      const std::string& file, std::string& reason) override {
    return make_geopackage_layer(file, reason);
  }
};

}  // namespace
}  // namespace headroom::maps

extern "C" headroom::maps::MapApi* headroom_map_api(int version) {
  static headroom::maps::Gdal api;
  if (version != headroom::maps::kMapApiVersion) return nullptr;
  OSRSetPROJEnableNetwork(0);
  GDALRegister_GTiff();
  RegisterOGRGeoJSON();
  RegisterOGRGeoPackage();
  return &api;
}
