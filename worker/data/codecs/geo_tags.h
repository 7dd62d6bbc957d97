// GeoTags: the tags of a GeoTIFF that say where its pixels lie, as they are in
// the file, so that a part of a map is a map: no library of maps is needed for
// that, and nothing of its reference system is lost.
//
// Errors: none; tags that are not of their type, or too long to be copied into
// every tile, are taken as missing.
#pragma once

#include <tiffio.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace headroom::codecs {

struct GeoTags {
  // Pixels and the coordinates of them: of six numbers each, column and row
  // first.
  std::vector<double> tie_points;
  std::vector<double> pixel_scale;
  std::vector<double> transformation;  // 4 x 4, row by row
  std::vector<uint16_t> keys;
  std::vector<double> key_numbers;
  std::string key_text;
  std::string no_data;  // GDAL's: the value of pixels that are none

  // The tags of the part that begins there.
  GeoTags moved(int64_t row, int64_t column) const;
};

// None where the file is no TIFF or its tags give no pixel coordinates.
std::optional<GeoTags> read_geo_tags(const std::filesystem::path& file);

// The value of pixels that are none, which a map needs not to have; none where
// the file names no number.
std::optional<double> no_data_of(const std::filesystem::path& file);

// REQUIRES: a file that is being written, before its first row.
void set_geo_tags(TIFF* tiff, const GeoTags& tags);

}  // namespace headroom::codecs
