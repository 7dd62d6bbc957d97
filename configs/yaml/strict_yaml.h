// Strict reading of YAML: every complaint says file:line:column and what to do.
//
// The readers of configs/ take what they know out of a tree (yaml_tree.h) with
// these functions and refuse the rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "configs/yaml/yaml_tree.h"

namespace headroom::yaml {

// The content of `file`, refused above 4 MiB. Throws Error{tag} with exit 2
// when it is missing, a folder, unreadable or too large.
std::string read_config_file(const std::filesystem::path& file,
                             const std::string& tag);

// A mapping whose keys are all in `known`; kNull counts as an empty mapping.
void require_mapping(const YamlValue& value, const std::string& what,
                     std::span<const std::string> known);

// The value under `key`; refuses a file without it.
const YamlValue& require(const YamlValue& mapping, const std::string& key);

// Each throws the refusal of a wrong type, naming `key`.
std::string as_text(const YamlValue& value, const std::string& key);
int64_t as_int64(const YamlValue& value, const std::string& key);
double as_double(const YamlValue& value, const std::string& key);

}  // namespace headroom::yaml
