// A YAML file as a tree that remembers where everything was written.
//
// Refused with file:line:column: syntax errors, tabs, duplicate keys, anchors
// and aliases (a few lines of them expand to gigabytes), more than one
// document.
#pragma once

#include <string>
#include <vector>

#include "parallel/base/text.h"

namespace headroom::yaml {

// SourcePlace: where in a file a value was written.

// file:line:column of a YAML value; lines and columns count from 1.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
};

// "run.yaml:3:5".
inline std::string to_string(const SourcePlace& place) {
  return cat(place.file, ":", place.line, ":", place.column);
}

struct YamlEntry;

struct YamlValue {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  SourcePlace place;
  std::string scalar;              // kScalar; also a number or a boolean
  bool quoted = false;             // "3" is text even where a number may stand
  std::vector<YamlValue> items;    // kSequence
  std::vector<YamlEntry> entries;  // kMapping, in the order written

  // The value under `key`, or nullptr.
  const YamlValue* find(const std::string& key) const;
};

struct YamlEntry {
  std::string key;
  SourcePlace key_place;
  YamlValue value;
};

// `text` is the content of `file`; an empty file is kNull.
YamlValue parse_yaml(const std::string& text, const std::string& file);

// Throws Error "[config] file:line:column: what: remedy" with exit 2.
[[noreturn]] void refuse(const SourcePlace& place, const std::string& what,
                         const std::string& remedy);

// "a number", "text", "a list", ...: what `value` looks like, for refusals.
std::string describe(const YamlValue& value);

}  // namespace headroom::yaml
