// RangeWish: the `range` entry of a data.yaml.
//
//   range: [0, 4095]                     these values become 0 and 1
//   range: [[0, 4095], [100, 9000]]      one range per band
//   range: {percentiles: [1, 99]}        measured from the training images
//   range: {percentiles: [1, 99], per_band: true}
//
// Errors: Error with file:line:column (exit 2).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "configs/yaml/yaml_tree.h"
#include "parallel/base/value_range.h"

namespace headroom::configs {

struct RangeWish {
  ValueRanges ranges;  // empty if measured from percentiles
  double low_percentile = 0, high_percentile = 100;
  bool per_band = false;

  bool is_measured() const { return ranges.empty(); }
  bool operator==(const RangeWish&) const = default;
};

// Returns nullopt if the mapping has no `range`.
std::optional<RangeWish> range_wish_of(const yaml::YamlValue& root);

// Reads the range of `data`, a data.yaml or a folder that contains one. Returns
// nullopt if the file does not exist; the reader of the data set reports that.
std::optional<RangeWish> read_range_wish(const std::filesystem::path& data);

// The entry as the text of a data.yaml: "range: [0, 4095]".
std::string to_yaml(const RangeWish& wish);

// The line for a data.yaml; "" without a range.
std::string range_line(const std::optional<RangeWish>& wish);

}  // namespace headroom::configs
