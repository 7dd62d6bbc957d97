#include "worker/weights/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"

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

// Reads the header token by token and accepts only its exact form, so that the
// result is never larger than the text, however nested or long the text is.
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

  // Callbacks of the parser.
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
        fail(cat("has more than ", kMaxDimensions, " dimensions"));
      if (value > uint64_t{std::numeric_limits<int64_t>::max()})
        fail(cat("has a dimension of ", value));
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
    fail(cat("its header is not valid JSON at byte ", position));
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

// Computes the bytes of a shape. Returns false if the product of the sizes
// overflows, or the product of the strides, which a tensor computes even for
// empty shapes.
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
    const std::string range = cat("[", entry.begin, ", ", entry.end, ")");
    uint64_t bytes = 0;
    if (!shape_bytes(entry, &bytes)) fail("has a shape that overflows");
    if (entry.begin > entry.end || entry.end > data_bytes)
      fail(cat("has bytes ", range, " of ", data_bytes));
    if (entry.end - entry.begin != bytes)
      fail(cat("has bytes ", range, " but its shape and dtype need ", bytes));
    if (entry.begin != covered)
      fail(cat("begins at byte ", entry.begin,
               " but the data before it ends at ", covered));
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw Error("safetensors",
                cat(file, ": its tensors have ", covered, " bytes but ",
                    data_bytes, " follow the header"),
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

static_assert(std::endian::native == std::endian::little,
              "safetensors data is copied as it lies in memory");

at::ScalarType scalar_type_of(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF64:
      return at::kDouble;
    case SafetensorsType::kF32:
      return at::kFloat;
    case SafetensorsType::kF16:
      return at::kHalf;
    case SafetensorsType::kBf16:
      return at::kBFloat16;
    case SafetensorsType::kI64:
      return at::kLong;
    case SafetensorsType::kI32:
      return at::kInt;
    case SafetensorsType::kI16:
      return at::kShort;
    case SafetensorsType::kI8:
      return at::kChar;
    case SafetensorsType::kU8:
      return at::kByte;
    case SafetensorsType::kBool:
      return at::kBool;
  }
  fail_check("type", __FILE__, __LINE__, "unknown safetensors type");
}

namespace {

SafetensorsType safetensors_type_of(at::ScalarType type) {
  for (int i = 0; i <= static_cast<int>(SafetensorsType::kBool); ++i) {
    const auto candidate = static_cast<SafetensorsType>(i);
    if (scalar_type_of(candidate) == type) return candidate;
  }
  fail_check("type", __FILE__, __LINE__,
             std::string("safetensors has no ") + c10::toString(type));
}

}  // namespace

// A file open for reading. It is read, not memory-mapped, because a file that
// shrinks while it is mapped kills the process.
class SafetensorsReader::InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : name_(path.string()), file_(path, Links::kFollowed) {
    if (file_.is_open()) return;
    if (errno == ENOTSUP || errno == EISDIR) {
      throw Error("safetensors", name_ + " is not a file",
                  "give the path of a .safetensors file");
    }
    throw Error("safetensors",
                name_ + " cannot be read (" + std::strerror(errno) + ")",
                "check the path and its permissions");
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void read(void* target, uint64_t num_bytes, uint64_t offset) {
    char* next = static_cast<char*>(target);
    while (num_bytes > 0) {
      const ssize_t count = ::pread(file_.descriptor(), next, num_bytes,
                                    static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        fail(count < 0 ? std::strerror(errno) : "it ended while being read");
      next += count;
      offset += static_cast<uint64_t>(count);
      num_bytes -= static_cast<uint64_t>(count);
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("safetensors", name_ + ": " + what,
                "the file is damaged or not a safetensors file");
  }

  const std::string& name() const { return name_; }
  uint64_t size() const { return file_.size(); }

 private:
  std::string name_;
  const RegularFile file_;
};

void order_for_file(std::vector<TensorDescription>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) {
                     return c10::elementSize(a.type) > c10::elementSize(b.type);
                   });
}

SafetensorsWriter::SafetensorsWriter(
    const std::filesystem::path& path, std::vector<TensorDescription> tensors,
    const std::map<std::string, std::string>& metadata)
    : file_(path), tensors_(std::move(tensors)) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::set<std::string> names{"__metadata__"};
  uint64_t offset = 0;
  for (const TensorDescription& tensor : tensors_) {
    HEADROOM_CHECK(names.insert(tensor.name).second,
                   "the name " + tensor.name + " cannot be used twice");
    SafetensorsEntry entry;
    entry.name = tensor.name;
    entry.type = safetensors_type_of(tensor.type);
    entry.shape = tensor.sizes;
    entry.begin = offset;
    uint64_t bytes = c10::elementSize(tensor.type);
    for (const int64_t size : tensor.sizes) {
      bytes *= static_cast<uint64_t>(size);
    }
    offset += bytes;
    entry.end = offset;
    header.entries.push_back(std::move(entry));
  }
  const std::string text = format_safetensors_header(header);
  const uint64_t header_bytes = text.size();
  put(&header_bytes, sizeof header_bytes);
  put(text.data(), text.size());
}

void SafetensorsWriter::write(const at::Tensor& tensor) {
  HEADROOM_CHECK(next_ < tensors_.size(), "more tensors than announced");
  const TensorDescription& announced = tensors_[next_++];
  HEADROOM_CHECK(tensor.sizes() == at::IntArrayRef(announced.sizes) &&
                     tensor.scalar_type() == announced.type,
                 announced.name + " was announced as " +
                     c10::str(at::IntArrayRef(announced.sizes)) + ", not " +
                     c10::str(tensor.sizes()));
  const at::Tensor row_major = tensor.detach().to(at::kCPU).contiguous();
  put(row_major.data_ptr(), row_major.nbytes());
}

void SafetensorsWriter::put(const void* data, size_t num_bytes) {
  file_.write(data, num_bytes);
  digest_.add(data, num_bytes);
  num_bytes_ += static_cast<int64_t>(num_bytes);
}

void SafetensorsWriter::commit() {
  HEADROOM_CHECK(next_ == tensors_.size(),
                 cat(next_, " of ", tensors_.size(), " tensors written"));
  file_.commit();
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(std::make_unique<InputFile>(path)) {
  InputFile& file = *file_;
  uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes)
    file.fail(cat("it has ", file.size(),
                  " bytes; the header's length alone needs 8"));
  file.read(&header_bytes, sizeof header_bytes, 0);
  const uint64_t rest = file.size() - sizeof header_bytes;
  if (header_bytes > rest || header_bytes > kMaxSafetensorsHeaderBytes)
    file.fail(cat("its header claims ", header_bytes, " bytes; the file has ",
                  rest, " and the limit is ", kMaxSafetensorsHeaderBytes));
  std::string text(header_bytes, '\0');
  file.read(text.data(), header_bytes, sizeof header_bytes);
  if (text.empty() || text.front() != '{')
    file.fail("its header does not begin with {");
  header_ = parse_safetensors_header(text, rest - header_bytes, file.name());
  data_begin_ = sizeof header_bytes + header_bytes;
}

SafetensorsReader::~SafetensorsReader() = default;

at::Tensor SafetensorsReader::read(const SafetensorsEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, scalar_type_of(entry.type));
  const uint64_t num_bytes = entry.end - entry.begin;
  file_->read(tensor.data_ptr(), num_bytes, data_begin_ + entry.begin);
  if (entry.type == SafetensorsType::kBool) {
    const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
    if (std::any_of(bytes, bytes + num_bytes,
                    [](unsigned char byte) { return byte > 1; }))
      file_->fail("tensor \"" + entry.name +
                  "\" has a BOOL that is not 0 or 1");
  }
  return tensor;
}

const at::Tensor& Safetensors::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error("safetensors", "there is no tensor \"" + name + "\"",
                "use a file that has it");
  return found->second;
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  SafetensorsReader file(path);
  Safetensors result;
  for (const SafetensorsEntry& entry : file.header().entries)
    result.tensors.emplace(entry.name, file.read(entry));
  result.metadata = file.header().metadata;
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  return SafetensorsReader(path).header();
}

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::map<std::string, const at::Tensor*> by_name;
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, tensor] : tensors) {
    by_name[name] = &tensor;
    descriptions.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  order_for_file(descriptions);
  SafetensorsWriter file(path, descriptions, metadata);
  for (const TensorDescription& description : descriptions)
    file.write(*by_name.at(description.name));
  file.commit();
}

}  // namespace headroom::weights
