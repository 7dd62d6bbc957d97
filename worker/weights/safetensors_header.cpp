#include "worker/weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::weights {
namespace {

constexpr std::size_t kMaxDimensions = 64;

struct TypeName {
  const char* name;
  int64_t size;
};
constexpr std::array<TypeName, 10> kTypes = {{{"F64", 8},
                                              {"F32", 4},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"I64", 8},
                                              {"I32", 4},
                                              {"I16", 2},
                                              {"I8", 1},
                                              {"U8", 1},
                                              {"BOOL", 1}}};

// Reads the header token by token and accepts nothing but its form, so that
// neither nesting nor length can make it build anything larger than the text.
class HeaderReader {
 public:
  using Json = nlohmann::json;

  explicit HeaderReader(std::string file) : file_(std::move(file)) {}

  SafetensorsHeader take() { return std::move(header_); }

  [[noreturn]] void fail(const std::string& what) const {
    const std::string tensor =
        entry_.name.empty() ? "" : "tensor \"" + entry_.name + "\" ";
    throw Error("safetensors", file_ + ": " + tensor + what,
                "the file is damaged or not a safetensors file");
  }

  // The parser's callbacks.
  bool null() { refuse("null"); }
  bool boolean(bool) { refuse("a boolean"); }
  bool number_integer(Json::number_integer_t) { refuse("a negative number"); }
  bool number_float(Json::number_float_t, const std::string&) {
    refuse("a fraction");
  }
  bool binary(Json::binary_t&) { refuse("binary data"); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (place_ == Place::kShape) {
      if (entry_.shape.size() == kMaxDimensions)
        fail("has more than " + std::to_string(kMaxDimensions) + " dimensions");
      if (value > uint64_t{std::numeric_limits<int64_t>::max()})
        fail("has a dimension of " + std::to_string(value));
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::kOffsets) {
      if (num_offsets_ == 2) fail("has more than 2 data_offsets");
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      refuse("a number");
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::kEntry && key_ == "dtype") {
      const auto found =
          std::find_if(kTypes.begin(), kTypes.end(),
                       [&value](const TypeName& t) { return value == t.name; });
      if (found == kTypes.end())
        fail("has the unknown dtype \"" + value.substr(0, 20) + "\"");
      entry_.type = static_cast<SafetensorsType>(found - kTypes.begin());
    } else {
      refuse("text");
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::kBefore) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kEntry;
      if (place_ == Place::kEntry) {
        entry_ = {};
        entry_.name = key_;
        num_offsets_ = 0;
      }
      seen_in_entry_.clear();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& value) {
    std::set<std::string>& seen =
        place_ == Place::kTop ? seen_at_top_ : seen_in_entry_;
    if (!seen.insert(value).second) fail("has the key \"" + value + "\" twice");
    if (place_ == Place::kEntry && value != "dtype" && value != "shape" &&
        value != "data_offsets")
      fail("has the unknown key \"" + value.substr(0, 40) + "\"");
    key_ = value;
    return true;
  }

  bool end_object() {
    if (place_ == Place::kEntry) {
      if (seen_in_entry_.size() != 3 || num_offsets_ != 2)
        fail("lacks one of dtype, shape and 2 data_offsets");
      header_.entries.push_back(std::move(entry_));
      entry_ = {};
    }
    place_ = place_ == Place::kTop ? Place::kAfter : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::kEntry || key_ == "dtype") refuse("a list");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() {
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) {
    entry_.name.clear();
    fail("its header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place {
    kBefore,
    kTop,
    kMetadata,
    kEntry,
    kShape,
    kOffsets,
    kAfter
  };

  [[noreturn]] void refuse(const std::string& found) const {
    fail("its header has " + found + " where none belongs (after \"" +
         key_.substr(0, 40) + "\")");
  }

  std::string file_;
  SafetensorsHeader header_;
  Place place_ = Place::kBefore;
  std::string key_;
  SafetensorsEntry entry_;
  int num_offsets_ = 0;
  std::set<std::string> seen_at_top_;
  std::set<std::string> seen_in_entry_;
};

// Bytes of a shape; false when the product, or that of the strides a tensor
// computes even for empty shapes, does not fit.
bool shape_bytes(const SafetensorsEntry& entry, uint64_t* bytes) {
  int64_t strides = size_of(entry.type);
  bool empty = false;
  for (const int64_t extent : entry.shape) {
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(strides, std::max<int64_t>(extent, 1), &strides))
      return false;
  }
  *bytes = empty ? 0 : static_cast<uint64_t>(strides);
  return true;
}

}  // namespace

const char* to_string(SafetensorsType type) {
  return kTypes.at(static_cast<std::size_t>(type)).name;
}

int64_t size_of(SafetensorsType type) {
  return kTypes.at(static_cast<std::size_t>(type)).size;
}

SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           uint64_t data_bytes,
                                           const std::string& file) {
  HeaderReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();

  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.begin != b.begin ? a.begin < b.begin
                                               : a.end < b.end;
                   });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto fail = [&](const std::string& what) {
      throw Error("safetensors",
                  file + ": tensor \"" + entry.name + "\" " + what,
                  "the file is damaged or not a safetensors file");
    };
    const std::string range = "[" + std::to_string(entry.begin) + ", " +
                              std::to_string(entry.end) + ")";
    uint64_t bytes = 0;
    if (!shape_bytes(entry, &bytes)) fail("has a shape that overflows");
    if (entry.begin > entry.end || entry.end > data_bytes)
      fail("has bytes " + range + " of " + std::to_string(data_bytes));
    if (entry.end - entry.begin != bytes)
      fail("has bytes " + range + " but its shape and dtype need " +
           std::to_string(bytes));
    if (entry.begin != covered)
      fail("begins at byte " + std::to_string(entry.begin) +
           " but the data before it ends at " + std::to_string(covered));
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw Error("safetensors",
                file + ": its tensors have " + std::to_string(covered) +
                    " bytes but " + std::to_string(data_bytes) +
                    " follow the header",
                "the file is damaged or not a safetensors file");
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries)
    json[entry.name] = {{"dtype", to_string(entry.type)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace headroom::weights
