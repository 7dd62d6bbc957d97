// GeoTags: the tags of a GeoTIFF that give the position of its pixels on Earth.
// They are copied as they are in the file, so that a tile cut from a map is
// itself a map. Copying needs no map library and keeps the reference system
// complete.
//
// Throws nothing for a bad file: tags of an unexpected type, or too long to be
// copied into every tile, count as missing.
#pragma once

#include <tiffio.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace headroom::codecs {

struct GeoTags {
  // Pairs of a pixel and its map coordinates. Each pair is six numbers, which
  // begin with column and row.
  std::vector<double> tie_points;
  std::vector<double> pixel_scale;
  std::vector<double> transformation;  // 4 x 4, row by row
  std::vector<uint16_t> keys;
  std::vector<double> key_numbers;
  std::string key_text;
  std::string no_data;  // GDAL's tag: the value that marks a pixel without data

  // Returns the tags for a part of the picture. The first pixel of that part is
  // at (row, column).
  GeoTags moved(int64_t row, int64_t column) const;
};

// Returns nullopt if the file is not a TIFF or its tags give no map position.
std::optional<GeoTags> read_geo_tags(const std::filesystem::path& file);

// The number in GDAL's tag that marks pixels without data. The file need not
// have a map position. Returns nullopt if the tag is missing or is not a
// number.
std::optional<double> no_data_of(const std::filesystem::path& file);

// Writes the tags. REQUIRES: `tiff` is open for writing and has no rows yet.
void set_geo_tags(TIFF* tiff, const GeoTags& tags);

}  // namespace headroom::codecs
