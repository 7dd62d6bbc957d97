#include "configs/yaml/strict_yaml.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "configs/yaml/line_reader.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::yaml {
namespace {
constexpr int64_t kLargestFile = 4 * 1024 * 1024;

[[noreturn]] void refuse_type(const YamlValue& value, const std::string& key,
                              const std::string& wanted) {
  refuse(value.place, key + " is " + describe(value),
         "write " + wanted + " here");
}

}  // namespace

std::string read_config_file(const std::filesystem::path& file,
                             const std::string& tag) {
  const RegularFile opened(file, Links::kFollowed);
  if (!opened.is_open() && errno == ENOENT) {
    throw Error(tag, "there is no file " + file.string(), "check the path");
  }
  if (!opened.is_open() && (errno == ENOTSUP || errno == ENXIO)) {
    throw Error(tag, file.string() + " is not a file", "name a .yaml file");
  }
  if (opened.size() > kLargestFile) {
    throw Error(tag,
                file.string() + " has " +
                    format_bytes(static_cast<int64_t>(opened.size())) +
                    ", more than the " + format_bytes(kLargestFile) +
                    " that a YAML file of a run may have",
                "name the right file");
  }
  std::optional<std::string> text;
  if (opened.is_open()) text = opened.read(0, kLargestFile);
  if (!text) {
    throw Error(
        tag, "cannot read " + file.string() + " (" + std::strerror(errno) + ")",
        "check its permissions");
  }
  const std::string kind = to_string(
      foreign_kind(std::string_view(*text).substr(0, kFileHeadBytes)));
  if (!kind.empty()) {
    throw Error(
        tag, file.string() + " is " + kind + ", not YAML in UTF-8",
        kind == "UTF-16 text" ? "save it as UTF-8" : "name the right file");
  }
  return plain_text(*std::move(text));
}

void require_mapping(const YamlValue& value, const std::string& what,
                     std::span<const std::string> known) {
  if (value.kind == YamlValue::Kind::kNull) return;
  if (value.kind != YamlValue::Kind::kMapping) {
    refuse(value.place, what + " is " + describe(value),
           "write lines of the form 'key: value'");
  }
  for (const YamlEntry& entry : value.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) {
      continue;
    }
    YamlValue key;
    key.kind = YamlValue::Kind::kScalar;
    key.scalar = entry.key;
    refuse(entry.key_place, "unknown key " + describe(key) + " in " + what,
           suggestion(entry.key, known, "the keys are " + joined(known, " ")));
  }
}

const YamlValue& require(const YamlValue& mapping, const std::string& key) {
  const YamlValue* value = mapping.find(key);
  if (value == nullptr) {
    refuse(mapping.place, "the key '" + key + "' is missing",
           "add a line '" + key + ": ...'");
  }
  return *value;
}

std::string as_text(const YamlValue& value, const std::string& key) {
  if (value.kind != YamlValue::Kind::kScalar) {
    refuse_type(value, key, "one word or a \"quoted text\"");
  }
  return value.scalar;
}

int64_t as_int64(const YamlValue& value, const std::string& key) {
  if (value.kind == YamlValue::Kind::kScalar && !value.quoted) {
    if (const auto number = parse_int64(value.scalar)) return *number;
  }
  refuse_type(value, key, "a whole number");
}

double as_double(const YamlValue& value, const std::string& key) {
  if (value.kind == YamlValue::Kind::kScalar && !value.quoted) {
    if (const auto number = parse_double(value.scalar)) return *number;
  }
  refuse_type(value, key, "a number");
}

}  // namespace headroom::yaml
