// RangeWish: what `range` of a data.yaml asks for.
//
//   range: [0, 4095]                     these values are 0 and 1
//   range: [[0, 4095], [100, 9000]]      the same for each band
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
  ValueRanges ranges;  // empty: those between two percentiles are measured
  double low_percentile = 0, high_percentile = 100;
  bool per_band = false;

  bool is_measured() const { return ranges.empty(); }
  bool operator==(const RangeWish&) const = default;
};

// Nothing where the mapping has no `range`.
std::optional<RangeWish> range_wish_of(const yaml::YamlValue& root);

// The wish of that data.yaml, or of the one in that folder. Nothing where there
// is no such file: the reader of the data set refuses it.
std::optional<RangeWish> read_range_wish(const std::filesystem::path& data);

// "range: [0, 4095]", as a data.yaml has it.
std::string to_yaml(const RangeWish& wish);

// The line of a data.yaml that asks for the same; "" for no wish.
std::string range_line(const std::optional<RangeWish>& wish);

}  // namespace headroom::configs
