// A table of names for the values of an enum: what flags, files and messages
// call each of them. A table is a range of NamedValue, or of a struct that has
// a `value` and a `name` beside more.
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

// The entry of `value`. REQUIRES: the table has one.
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

// Nothing for a name that the table lacks.
template <typename Table>
auto value_in(const Table& table, std::string_view name)
    -> std::optional<decltype(table.begin()->value)> {
  for (const auto& entry : table) {
    if (name == entry.name) return entry.value;
  }
  return std::nullopt;
}

// The names in the table's order.
template <typename Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

}  // namespace headroom
