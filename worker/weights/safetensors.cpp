#include "worker/weights/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "parallel/base/check.h"

namespace headroom::weights {

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

// A file open for reading. Reads, not a memory map: a file that shrinks under
// a map ends the process.
class SafetensorsReader::InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : name_(path.string()),
        descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status;
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
      const std::string reason = std::strerror(errno);
      if (descriptor_ >= 0) ::close(descriptor_);
      throw Error("safetensors", name_ + " cannot be read (" + reason + ")",
                  "check the path and its permissions");
    }
    if (!S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      throw Error("safetensors", name_ + " is not a file",
                  "give the path of a .safetensors file");
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void read(void* target, uint64_t num_bytes, uint64_t offset) {
    char* next = static_cast<char*>(target);
    while (num_bytes > 0) {
      const ssize_t count =
          ::pread(descriptor_, next, num_bytes, static_cast<off_t>(offset));
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
  uint64_t size() const { return size_; }

 private:
  std::string name_;
  int descriptor_;
  uint64_t size_ = 0;
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
  HEADROOM_CHECK(next_ == tensors_.size(), std::to_string(next_) + " of " +
                                               std::to_string(tensors_.size()) +
                                               " tensors written");
  file_.commit();
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(std::make_unique<InputFile>(path)) {
  InputFile& file = *file_;
  uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes)
    file.fail("it has " + std::to_string(file.size()) +
              " bytes; the header's length alone needs 8");
  file.read(&header_bytes, sizeof header_bytes, 0);
  const uint64_t rest = file.size() - sizeof header_bytes;
  if (header_bytes > rest || header_bytes > kMaxSafetensorsHeaderBytes)
    file.fail("its header claims " + std::to_string(header_bytes) +
              " bytes; the file has " + std::to_string(rest) +
              " and the limit is " +
              std::to_string(kMaxSafetensorsHeaderBytes));
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
