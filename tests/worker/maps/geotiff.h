// GeoTIFFs that tests make with GDAL.
#pragma once

#include <gdal.h>
#include <ogr_srs_api.h>

#include <array>
#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "parallel/base/check.h"

namespace headroom {

struct Geotiff {
  std::array<double, 6> transform{};
  std::string system = {};  // as GDAL writes it: "EPSG:32633"; "": none
  std::vector<std::string> options = {};  // options of creation, as "TILED=YES"
};

// Sets the place of an open map; returns whether GDAL accepts it.
inline bool place_map(GDALDatasetH map, std::array<double, 6> transform,
                      const std::string& name_of_system) {
  if (GDALSetGeoTransform(map, transform.data()) != CE_None) return false;
  if (name_of_system.empty()) return true;
  const OGRSpatialReferenceH system = OSRNewSpatialReference(nullptr);
  const bool is_placed =
      OSRSetFromUserInput(system, name_of_system.c_str()) == OGRERR_NONE &&
      GDALSetSpatialRef(map, system) == CE_None;
  OSRDestroySpatialReference(system);
  return is_placed;
}

// Writes `times` copies of `rgb`, one below the other.
inline void write_geotiff(const std::filesystem::path& file, const cv::Mat& rgb,
                          const Geotiff& map, int times = 1) {
  GDALAllRegister();
  std::vector<const char*> options;
  for (const std::string& option : map.options) {
    options.push_back(option.c_str());
  }
  options.push_back(nullptr);
  const GDALDatasetH made = GDALCreate(
      GDALGetDriverByName("GTiff"), file.c_str(), rgb.cols, rgb.rows * times, 3,
      GDT_Byte, const_cast<char**>(options.data()));
  HEADROOM_CHECK(made != nullptr, file.string());
  bool is_written = place_map(made, map.transform, map.system);
  for (int i = 0; i < times; ++i) {
    is_written =
        is_written &&
        GDALDatasetRasterIO(made, GF_Write, 0, i * rgb.rows, rgb.cols, rgb.rows,
                            rgb.data, rgb.cols, rgb.rows, GDT_Byte, 3, nullptr,
                            3, static_cast<int>(rgb.step), 1) == CE_None;
  }
  GDALClose(made);
  HEADROOM_CHECK(is_written, file.string());
}

}  // namespace headroom
