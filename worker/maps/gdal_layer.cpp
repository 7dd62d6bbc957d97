#include "worker/maps/gdal_layer.h"

#include <cpl_conv.h>
#include <cpl_string.h>
#include <cpl_vsi.h>
#include <ogr_api.h>

#include <array>
#include <type_traits>
#include <utility>

namespace headroom::maps {

// GDAL keeps handlers in a stack of the thread.
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
  if (OSRSetFromUserInput(system.get(), wkt_or_name.c_str()) != OGRERR_NONE) {
    return nullptr;
  }
  OSRSetAxisMappingStrategy(system.get(), OAMS_TRADITIONAL_GIS_ORDER);
  return system;
}

namespace {

constexpr const char* kLayer = "detections";
constexpr const char* kWgs84 = "OGC:CRS84";

struct Field {
  const char* name;
  OGRFieldType type;
};
// Their places are those of the calls in write().
constexpr std::array<Field, 8> kFields = {{{"class", OFTInteger},
                                           {"name", OFTString},
                                           {"confidence", OFTReal},
                                           {"image", OFTString},
                                           {"x1", OFTReal},
                                           {"y1", OFTReal},
                                           {"x2", OFTReal},
                                           {"y2", OFTReal}}};

struct DestroyTransformation {
  void operator()(OGRCoordinateTransformationH transformation) const {
    OCTDestroyCoordinateTransformation(transformation);
  }
};
using Transformation =
    std::unique_ptr<std::remove_pointer_t<OGRCoordinateTransformationH>,
                    DestroyTransformation>;
struct DestroyFeature {
  void operator()(void* feature) const { OGR_F_Destroy(feature); }
};
struct FreeOptions {
  void operator()(char** list) const { CSLDestroy(list); }
};
using Options = std::unique_ptr<char*, FreeOptions>;

class LayerWriter final : public MapLayerWriter {
 public:
  LayerWriter(Dataset dataset, MapLayerFormat format)
      : dataset_(std::move(dataset)), format_(format) {}

  std::string write(const MapPlace& place, const MapBox& box) override {
    const GdalMessages messages;
    if (layer_ == nullptr && !begin(place)) {
      return messages.reason("the layer cannot be made");
    }
    if (transformation_ == nullptr || place.reference_system != from_) {
      if (!turn_to(place)) {
        return messages.reason("its reference system is not understood");
      }
    }
    std::array<double, 4> x = {box.x1, box.x2, box.x2, box.x1};
    std::array<double, 4> y = {box.y1, box.y1, box.y2, box.y2};
    for (size_t corner = 0; corner < x.size(); ++corner) {
      const auto& t = place.transform;
      const double column = x[corner], row = y[corner];
      x[corner] = t[0] + column * t[1] + row * t[2];
      y[corner] = t[3] + column * t[4] + row * t[5];
    }
    if (!OCTTransform(transformation_.get(), 4, x.data(), y.data(), nullptr)) {
      return messages.reason("a corner has no place in the layer's system");
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
      return messages.reason("a box cannot be written");
    }
    return "";
  }

  std::string finish() override {
    const GdalMessages messages;
    if (layer_ == nullptr && !make_layer(reference_system(kWgs84))) {
      return messages.reason("the layer cannot be made");
    }
    if (has_transaction_ &&
        GDALDatasetCommitTransaction(dataset_.get()) != OGRERR_NONE) {
      return messages.reason("the file cannot be written");
    }
    dataset_.reset();
    return messages.first();
  }

 private:
  // GeoPackages keep the coordinates of the first picture.
  bool begin(const MapPlace& place) {
    return make_layer(reference_system(
        format_ == MapLayerFormat::kGeoJson ? kWgs84 : place.reference_system));
  }

  bool make_layer(ReferenceSystem system) {
    if (system == nullptr) return false;
    char** list = nullptr;
    if (format_ == MapLayerFormat::kGeoJson) {
      list = CSLSetNameValue(list, "RFC7946", "YES");
      list = CSLSetNameValue(list, "COORDINATE_PRECISION", "9");
    }
    const Options options(list);
    // SQLite writes to disk once for all boxes.
    has_transaction_ =
        format_ == MapLayerFormat::kGeoPackage &&
        GDALDatasetStartTransaction(dataset_.get(), 0) == OGRERR_NONE;
    layer_ = GDALDatasetCreateLayer(dataset_.get(), kLayer, system.get(),
                                    wkbPolygon, options.get());
    if (layer_ == nullptr) return false;
    for (const Field& field : kFields) {
      const OGRFieldDefnH definition = OGR_Fld_Create(field.name, field.type);
      const OGRErr made = OGR_L_CreateField(layer_, definition, 1);
      OGR_Fld_Destroy(definition);
      if (made != OGRERR_NONE) return false;
    }
    system_ = std::move(system);
    return true;
  }

  bool turn_to(const MapPlace& place) {
    const ReferenceSystem from = reference_system(place.reference_system);
    if (from == nullptr) return false;
    transformation_.reset(
        OCTNewCoordinateTransformation(from.get(), system_.get()));
    from_ = place.reference_system;
    return transformation_ != nullptr;
  }

  Dataset dataset_;
  const MapLayerFormat format_;
  bool has_transaction_ = false;
  OGRLayerH layer_ = nullptr;      // the data set's; null before the first box
  ReferenceSystem system_;         // the layer's
  std::string from_;               // the newest picture's system
  Transformation transformation_;  // leads to the layer's system
};

}  // namespace

std::unique_ptr<MapLayerWriter> create_layer(const std::string& file,
                                             MapLayerFormat format,
                                             std::string& reason) {
  const GdalMessages messages;
  const GDALDriverH driver = GDALGetDriverByName(
      format == MapLayerFormat::kGeoJson ? "GeoJSON" : "GPKG");
  VSIUnlink(file.c_str());
  Dataset dataset(driver == nullptr ? nullptr
                                    : GDALCreate(driver, file.c_str(), 0, 0, 0,
                                                 GDT_Unknown, nullptr));
  if (dataset == nullptr) {
    reason = messages.reason("this GDAL writes no such files");
    return nullptr;
  }
  return std::make_unique<LayerWriter>(std::move(dataset), format);
}

}  // namespace headroom::maps
