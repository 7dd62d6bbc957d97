// Strict YAML: every complaint says file:line:column and what to do.
//
// A file is read into a tree of YamlValue that remembers where everything was
// written; the readers of configs/ take what they know out of it and refuse the
// rest. Refused here: syntax errors, tabs, duplicate keys, anchors and aliases
// (a few lines of them expand to gigabytes), more than one document.
//
// Threads: values; no shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "configs/source_place.h"

namespace headroom {

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

// The content of `file`, refused above 4 MiB. Throws Error{tag} with exit 2
// when it is missing, a folder, unreadable or too large.
std::string read_config_file(const std::filesystem::path& file,
                             const std::string& tag);

// Throws Error "[config] file:line:column: what: remedy" with exit 2.
[[noreturn]] void refuse(const SourcePlace& place, const std::string& what,
                         const std::string& remedy);

// "a number", "text", "a list", ...: what `value` looks like, for refusals.
std::string describe(const YamlValue& value);

// A mapping whose keys are all in `known`; kNull counts as an empty mapping.
void require_mapping(const YamlValue& value, const std::string& what,
                     std::span<const std::string> known);

// The value under `key`; refuses a file without it.
const YamlValue& require(const YamlValue& mapping, const std::string& key);

// Each throws the refusal of a wrong type, naming `key`.
std::string as_text(const YamlValue& value, const std::string& key);
int64_t as_int64(const YamlValue& value, const std::string& key);
double as_double(const YamlValue& value, const std::string& key);

}  // namespace headroom
