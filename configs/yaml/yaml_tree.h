// A YAML file as a tree with the place of every key and value.
//
// Refused with file:line:column: syntax errors, tabs, duplicate keys, anchors
// and aliases (which can expand a few lines to gigabytes), more than one
// document.
#pragma once

#include <string>
#include <vector>

#include "parallel/base/text.h"

namespace headroom::yaml {

// The place of a YAML value in a file; lines and columns count from 1.

struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
};

// As text: "run.yaml:3:5".
inline std::string to_string(const SourcePlace& place) {
  return cat(place.file, ":", place.line, ":", place.column);
}

struct YamlEntry;

struct YamlValue {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  SourcePlace place;
  std::string scalar;              // the text of a kScalar, also of a number
  bool quoted = false;             // "3" in quotes is always text
  std::vector<YamlValue> items;    // the items of a kSequence
  std::vector<YamlEntry> entries;  // the entries of a kMapping, as written

  // The value under `key`, or nullptr.
  const YamlValue* find(const std::string& key) const;
};

struct YamlEntry {
  std::string key;
  SourcePlace key_place;
  YamlValue value;
};

// Parses `text`, the content of `file`; an empty file gives kNull.
YamlValue parse_yaml(const std::string& text, const std::string& file);

// Throws Error "[config] file:line:column: what: remedy" with exit 2.
[[noreturn]] void refuse(const SourcePlace& place, const std::string& what,
                         const std::string& remedy);

// The kind of `value` for refusals: "a number", "text", "a list", ...
std::string describe(const YamlValue& value);

}  // namespace headroom::yaml
