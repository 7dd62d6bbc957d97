// Tables of names for enum values, as used in flags, files and messages. A
// table is a range of NamedValue or of another struct with `value` and `name`.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom {

template <typename Value>
struct NamedValue {
  Value value;
  const char* name;
};

// Returns the entry of `value`. REQUIRES: the table has one.
template <typename Table, typename Value>
const auto& entry_in(const Table& table, Value value) {
  const auto found =
      std::find_if(table.begin(), table.end(),
                   [value](const auto& entry) { return entry.value == value; });
  HEADROOM_CHECK(found != table.end(),
                 cat("no name for value ", static_cast<int>(value)));
  return *found;
}

template <typename Table, typename Value>
std::string name_in(const Table& table, Value value) {
  return entry_in(table, value).name;
}

// Returns no value if the table lacks the name.
template <typename Table>
auto value_in(const Table& table, std::string_view name)
    -> std::optional<decltype(table.begin()->value)> {
  for (const auto& entry : table) {
    if (name == entry.name) return entry.value;
  }
  return std::nullopt;
}

// Returns the names in the table's order.
template <typename Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

}  // namespace headroom
