#include "configs/range_wish.h"

#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;
using YamlKind = yaml::YamlValue::Kind;

constexpr const char* kForms =
    "write range: [low, high], one such pair for each band, or {percentiles: "
    "[1, 99]}";

ValueRange pair_of(const yaml::YamlValue& value, const std::string& key) {
  if (value.kind != YamlKind::kSequence || value.items.size() != 2) {
    yaml::refuse(value.place, key + " is no pair [low, high]", kForms);
  }
  const ValueRange range{yaml::as_double(value.items[0], key),
                         yaml::as_double(value.items[1], key)};
  if (!is_value_range(range.low, range.high)) {
    yaml::refuse(
        value.place,
        key + " is [" + value.items[0].scalar + ", " + value.items[1].scalar +
            "], but " +
            (range.low < range.high ? "the two are too close, or too far apart"
                                    : "low has to be below high"),
        kForms);
  }
  return range;
}

std::string pair_text(double low, double high) {
  return "[" + yaml::exact_text(low) + ", " + yaml::exact_text(high) + "]";
}

RangeWish percentiles_of(const yaml::YamlValue& value) {
  static const std::vector<std::string> keys = {"percentiles", "per_band"};
  yaml::require_mapping(value, "range", keys);
  const yaml::YamlValue& pair = yaml::require(value, "percentiles");
  const ValueRange percentiles = pair_of(pair, "percentiles");
  if (percentiles.low < 0 || percentiles.high > 100) {
    yaml::refuse(pair.place,
                 "percentiles are " +
                     pair_text(percentiles.low, percentiles.high) +
                     ", outside of 0 to 100",
                 kForms);
  }
  RangeWish wish{.ranges = {},
                 .low_percentile = percentiles.low,
                 .high_percentile = percentiles.high};
  if (const yaml::YamlValue* per_band = value.find("per_band")) {
    const auto said = yaml::parse_bool(per_band->scalar);
    if (per_band->kind != YamlKind::kScalar || !said) {
      yaml::refuse(per_band->place, "per_band is " + yaml::describe(*per_band),
                   "write true or false");
    }
    wish.per_band = *said;
  }
  return wish;
}

}  // namespace

std::optional<RangeWish> range_wish_of(const yaml::YamlValue& root) {
  const yaml::YamlValue* value = root.find("range");
  if (value == nullptr || value->kind == YamlKind::kNull) return std::nullopt;
  if (value->kind == YamlKind::kMapping) return percentiles_of(*value);
  RangeWish wish;
  const bool has_pairs = value->kind == YamlKind::kSequence &&
                         !value->items.empty() &&
                         value->items.front().kind == YamlKind::kSequence;
  if (!has_pairs) {
    wish.ranges.push_back(pair_of(*value, "range"));
    return wish;
  }
  for (const yaml::YamlValue& item : value->items) {
    wish.ranges.push_back(pair_of(item, "range"));
  }
  return wish;
}

std::optional<RangeWish> read_range_wish(const fs::path& data) {
  std::error_code error;
  const fs::path file =
      fs::is_directory(data, error) ? data / "data.yaml" : data;
  const std::string suffix = file.extension().string();
  if (!fs::is_regular_file(file, error) ||
      (suffix != ".yaml" && suffix != ".yml")) {
    return std::nullopt;
  }
  return range_wish_of(
      yaml::parse_yaml(yaml::read_config_file(file, "data"), file.string()));
}

std::string to_yaml(const RangeWish& wish) {
  if (wish.is_measured()) {
    return "range: {percentiles: " +
           pair_text(wish.low_percentile, wish.high_percentile) +
           (wish.per_band ? ", per_band: true}" : "}");
  }
  const std::string pairs = joined(
      wish.ranges, ", ",
      [](const ValueRange& range) { return pair_text(range.low, range.high); });
  return "range: " + (wish.ranges.size() == 1 ? pairs : "[" + pairs + "]");
}

std::string range_line(const std::optional<RangeWish>& wish) {
  return wish ? to_yaml(*wish) + "\n" : "";
}

}  // namespace headroom::configs
