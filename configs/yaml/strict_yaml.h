// Strict reading of YAML: every refusal has file:line:column and a remedy.
//
// The readers of configs/ read the known keys of a tree (yaml_tree.h) with
// these functions and refuse all others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "configs/yaml/yaml_tree.h"

namespace headroom::yaml {

// Reads `file`. Throws Error{tag} with exit 2 if it is missing, a folder,
// unreadable or larger than 4 MiB.
std::string read_config_file(const std::filesystem::path& file,
                             const std::string& tag);

// Refuses a value that is not a mapping with keys in `known`; kNull counts as
// an empty mapping.
void require_mapping(const YamlValue& value, const std::string& what,
                     std::span<const std::string> known);

// Returns the value under `key`; refuses a mapping without it.
const YamlValue& require(const YamlValue& mapping, const std::string& key);

// Each function refuses a value of the wrong type, and names `key`.
std::string as_text(const YamlValue& value, const std::string& key);
int64_t as_int64(const YamlValue& value, const std::string& key);
double as_double(const YamlValue& value, const std::string& key);

}  // namespace headroom::yaml
