#include "worker/maps/gdal_layer.h"
#include "parallel/base/text.h"

#include <cpl_conv.h>
#include <cpl_string.h>
#include <cpl_vsi.h>
#include <ogr_api.h>
#include <ogr_spatialref.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

namespace headroom::maps {

// GDAL keeps a stack of error handlers for each thread.
GdalMessages::GdalMessages() { CPLPushErrorHandlerEx(&keep, this); }

GdalMessages::~GdalMessages() { CPLPopErrorHandler(); }

void GdalMessages::keep(CPLErr severity, CPLErrorNum, const char* text) {
  auto* const messages =
      static_cast<GdalMessages*>(CPLGetErrorHandlerUserData());
  if (severity >= CE_Failure && messages->first_.empty()) {
    messages->first_ = text;
  }
}

ReferenceSystem reference_system(const std::string& wkt_or_name) {
  ReferenceSystem system(OSRNewSpatialReference(nullptr));
  // With these limitations, GDAL opens no file or address that a name contains.
  if (OGRSpatialReference::FromHandle(system.get())
          ->SetFromUserInput(
              wkt_or_name.c_str(),
              OGRSpatialReference::SET_FROM_USER_INPUT_LIMITATIONS_get()) !=
      OGRERR_NONE) {
    return nullptr;
  }
  OSRSetAxisMappingStrategy(system.get(), OAMS_TRADITIONAL_GIS_ORDER);
  return system;
}

double farthest_coordinate(OGRSpatialReferenceH system) {
  constexpr double kMostDegrees = 1e5, kMostMetres = 1e9;
  return OSRIsGeographic(system) ? kMostDegrees : kMostMetres;
}

namespace {

constexpr const char* kLayer = "detections";

struct Field {
  const char* name;
  OGRFieldType type;
};
// The layer's fields, in the order in which write() sets them.
constexpr std::array<Field, 8> kFields = {{{"class", OFTInteger},
                                           {"name", OFTString},
                                           {"confidence", OFTReal},
                                           {"image", OFTString},
                                           {"x1", OFTReal},
                                           {"y1", OFTReal},
                                           {"x2", OFTReal},
                                           {"y2", OFTReal}}};

struct DestroyFeature {
  void operator()(void* feature) const { OGR_F_Destroy(feature); }
};
struct FreeOptions {
  void operator()(char** list) const { CSLDestroy(list); }
};
using Options = std::unique_ptr<char*, FreeOptions>;

using Corners = std::array<double, 4>;

// Moves a box's longitudes by whole turns so that its centre is between -180
// and 180 degrees. Sets longitudes that differ from 180 degrees only by
// rounding errors to exactly 180. Returns false if a latitude is beyond the
// poles.
bool put_on_earth(Corners& longitudes, const Corners& latitudes) {
  constexpr double kEdge = 180, kPole = 90, kRounding = 1e-9;
  const double centre =
      std::accumulate(longitudes.begin(), longitudes.end(), 0.0) /
      static_cast<double>(longitudes.size());
  const double turn = std::round(centre / (2 * kEdge)) * 2 * kEdge;
  for (double& longitude : longitudes) {
    longitude -= turn;
    if (std::abs(std::abs(longitude) - kEdge) < kRounding) {
      longitude = std::copysign(kEdge, longitude);
    }
  }
  return std::ranges::all_of(
      latitudes, [](double latitude) { return std::abs(latitude) <= kPole; });
}

class LayerWriter final : public MapLayerWriter {
 public:
  LayerWriter(Dataset dataset, bool is_geojson, std::string memory_file)
      : dataset_(std::move(dataset)),
        is_geojson_(is_geojson),
        memory_file_(std::move(memory_file)) {}
  ~LayerWriter() override {
    const GdalMessages unheard;
    dataset_.reset();
    if (!memory_file_.empty()) VSIUnlink(memory_file_.c_str());
  }

  std::string begin(const MapPlace& place) override {
    const GdalMessages unheard;
    if (transformation_ != nullptr && from_ == place.reference_system) {
      pixels_ = place.transform;
      return "";
    }
    const ReferenceSystem from = reference_system(place.reference_system);
    if (from == nullptr) {
      return "its coordinate reference system is not understood";
    }
    if (layer_ == nullptr &&
        !make_layer(is_geojson_ ? "OGC:CRS84" : place.reference_system)) {
      return "no layer can be made in its coordinate reference system";
    }
    transformation_.reset(
        OCTNewCoordinateTransformation(from.get(), system_.get()));
    from_ = place.reference_system;
    farthest_ = farthest_coordinate(from.get());
    pixels_ = place.transform;
    return transformation_ != nullptr
               ? ""
               : "its coordinate reference system has no way to " +
                     std::string(is_geojson_ ? "longitude and latitude"
                                             : "that of the first image");
  }

  Written write(const MapBox& box) override {
    const GdalMessages messages;
    Corners x = {box.x1, box.x2, box.x2, box.x1};
    Corners y = {box.y1, box.y1, box.y2, box.y2};
    for (size_t corner = 0; corner < x.size(); ++corner) {
      const auto& t = pixels_;
      const double column = x[corner], row = y[corner];
      x[corner] = t[0] + column * t[1] + row * t[2];
      y[corner] = t[3] + column * t[4] + row * t[5];
    }
    const auto is_on_earth = [this](double value) {
      return std::abs(value) <= farthest_;
    };
    if (!std::ranges::all_of(x, is_on_earth) ||
        !std::ranges::all_of(y, is_on_earth) ||
        !OCTTransform(transformation_.get(), static_cast<int>(x.size()),
                      x.data(), y.data(), nullptr) ||
        (is_geojson_ && !put_on_earth(x, y))) {
      return {.has_place = false, .fault = ""};
    }
    const std::unique_ptr<void, DestroyFeature> feature(
        OGR_F_Create(OGR_L_GetLayerDefn(layer_)));
    int field = 0;
    OGR_F_SetFieldInteger(feature.get(), field++, box.class_index);
    OGR_F_SetFieldString(feature.get(), field++, box.class_name.c_str());
    OGR_F_SetFieldDouble(feature.get(), field++, box.confidence);
    OGR_F_SetFieldString(feature.get(), field++, box.image.c_str());
    for (const double side : {box.x1, box.y1, box.x2, box.y2}) {
      OGR_F_SetFieldDouble(feature.get(), field++, side);
    }
    const OGRGeometryH ring = OGR_G_CreateGeometry(wkbLinearRing);
    for (const size_t corner : {0, 1, 2, 3, 0}) {
      OGR_G_AddPoint_2D(ring, x[corner], y[corner]);
    }
    const OGRGeometryH polygon = OGR_G_CreateGeometry(wkbPolygon);
    OGR_G_AddGeometryDirectly(polygon, ring);
    OGR_F_SetGeometryDirectly(feature.get(), polygon);
    if (OGR_L_CreateFeature(layer_, feature.get()) != OGRERR_NONE) {
      return {.fault = messages.reason("a box cannot be written")};
    }
    return {};
  }

  std::string finish(std::string& bytes) override {
    const GdalMessages messages;
    if (layer_ == nullptr &&
        !make_layer(is_geojson_ ? "OGC:CRS84" : "EPSG:4326")) {
      return messages.reason("the layer cannot be made");
    }
    if (has_transaction_ &&
        GDALDatasetCommitTransaction(dataset_.get()) != OGRERR_NONE) {
      return messages.reason("the file cannot be written");
    }
    dataset_.reset();
    if (!memory_file_.empty()) {
      vsi_l_offset size = 0;
      const GByte* const content =
          VSIGetMemFileBuffer(memory_file_.c_str(), &size, 0);
      if (content == nullptr) return "the layer was lost";
      bytes.assign(reinterpret_cast<const char*>(content), size);
    }
    return messages.first();
  }

 private:
  bool make_layer(const std::string& system) {
    system_ = reference_system(system);
    if (system_ == nullptr) return false;
    char** list = nullptr;
    if (is_geojson_) {
      list = CSLSetNameValue(list, "RFC7946", "YES");
      list = CSLSetNameValue(list, "COORDINATE_PRECISION", "9");
    }
    const Options options(list);
    // One transaction, so that SQLite writes to disk once for all boxes.
    has_transaction_ = !is_geojson_ && GDALDatasetStartTransaction(
                                           dataset_.get(), 0) == OGRERR_NONE;
    const OGRLayerH layer = GDALDatasetCreateLayer(
        dataset_.get(), kLayer, system_.get(), wkbPolygon, options.get());
    if (layer == nullptr) return false;
    for (const Field& field : kFields) {
      const OGRFieldDefnH definition = OGR_Fld_Create(field.name, field.type);
      const OGRErr made = OGR_L_CreateField(layer, definition, 1);
      OGR_Fld_Destroy(definition);
      if (made != OGRERR_NONE) return false;
    }
    layer_ = layer;
    return true;
  }

  Dataset dataset_;
  const bool is_geojson_;
  const std::string memory_file_;  // "" for a file on disk
  bool has_transaction_ = false;
  OGRLayerH layer_ = nullptr;       // the only layer; nullptr before begin()
  ReferenceSystem system_;          // reference system of the layer
  std::array<double, 6> pixels_{};  // transform passed to the last begin()
  std::string from_;     // reference system passed to the last begin()
  double farthest_ = 0;  // largest valid coordinate in that system
  Transformation transformation_;  // converts from `from_` to `system_`
};

std::unique_ptr<MapLayerWriter> make_layer(const char* driver_name,
                                           const std::string& file,
                                           bool is_geojson,
                                           std::string& reason) {
  const GdalMessages messages;
  const GDALDriverH driver = GDALGetDriverByName(driver_name);
  Dataset dataset(driver == nullptr ? nullptr
                                    : GDALCreate(driver, file.c_str(), 0, 0, 0,
                                                 GDT_Unknown, nullptr));
  if (dataset == nullptr) {
    reason = messages.reason("this GDAL writes no such files");
    return nullptr;
  }
  return std::make_unique<LayerWriter>(std::move(dataset), is_geojson,
                                       is_geojson ? file : "");
}

}  // namespace

// The layer is made in memory, because GDAL's GeoJSON writer does not check
// whether writing to disk succeeded.
std::unique_ptr<MapLayerWriter> make_geojson_layer(std::string& reason) {
  static std::atomic<int64_t> number = 0;
  return make_layer("GeoJSON", cat("/vsimem/headroom-", ++number, ".geojson"),
                    /*is_geojson=*/true, reason);
}

std::unique_ptr<MapLayerWriter> make_geopackage_layer(const std::string& file,
                                                      std::string& reason) {
  VSIUnlink(file.c_str());
  return make_layer("GPKG", file, /*is_geojson=*/false, reason);
}

}  // namespace headroom::maps
