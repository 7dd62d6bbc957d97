#include "worker/model/safetensors.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "parallel/base/check.h"
#include "worker/model/atomic_file.h"

namespace headroom {
namespace {

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

SafetensorsType safetensors_type_of(at::ScalarType type) {
  for (int i = 0; i <= static_cast<int>(SafetensorsType::kBool); ++i) {
    const auto candidate = static_cast<SafetensorsType>(i);
    if (scalar_type_of(candidate) == type) return candidate;
  }
  fail_check("type", __FILE__, __LINE__,
             std::string("safetensors has no ") + c10::toString(type));
}

// A file open for reading. Reads, not a memory map: a file that shrinks under
// a map ends the process.
class InputFile {
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

  void read(void* target, uint64_t num_bytes) {
    char* next = static_cast<char*>(target);
    while (num_bytes > 0) {
      const ssize_t count = ::read(descriptor_, next, num_bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        fail(count < 0 ? std::strerror(errno) : "it ended while being read");
      next += count;
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

// Leaves `file` at the first byte of data.
SafetensorsHeader read_header(InputFile& file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes)
    file.fail("it has " + std::to_string(file.size()) +
              " bytes; the header's length alone needs 8");
  file.read(&header_bytes, sizeof header_bytes);
  const uint64_t rest = file.size() - sizeof header_bytes;
  if (header_bytes > rest || header_bytes > kMaxSafetensorsHeaderBytes)
    file.fail("its header claims " + std::to_string(header_bytes) +
              " bytes; the file has " + std::to_string(rest) +
              " and the limit is " +
              std::to_string(kMaxSafetensorsHeaderBytes));
  std::string text(header_bytes, '\0');
  file.read(text.data(), header_bytes);
  if (text.empty() || text.front() != '{')
    file.fail("its header does not begin with {");
  return parse_safetensors_header(text, rest - header_bytes, file.name());
}

}  // namespace

const at::Tensor& Safetensors::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error("safetensors", "there is no tensor \"" + name + "\"",
                "use a file that has it");
  return found->second;
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  InputFile file(path);
  SafetensorsHeader header = read_header(file);
  Safetensors result;
  for (const SafetensorsEntry& entry : header.entries) {
    at::Tensor tensor = at::empty(entry.shape, scalar_type_of(entry.type));
    file.read(tensor.data_ptr(), entry.end - entry.begin);
    if (entry.type == SafetensorsType::kBool) {
      const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
      if (std::any_of(bytes, bytes + (entry.end - entry.begin),
                      [](unsigned char byte) { return byte > 1; }))
        file.fail("tensor \"" + entry.name +
                  "\" has a BOOL that is not 0 or 1");
    }
    result.tensors.emplace(entry.name, std::move(tensor));
  }
  result.metadata = std::move(header.metadata);
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  InputFile file(path);
  return read_header(file);
}

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<const std::pair<std::string, at::Tensor>*> ordered;
  std::set<std::string> names{"__metadata__"};
  for (const auto& named : tensors) {
    HEADROOM_CHECK(names.insert(named.first).second,
                   "the name " + named.first + " cannot be used twice");
    ordered.push_back(&named);
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto* a, const auto* b) {
                     return a->second.element_size() > b->second.element_size();
                   });

  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t offset = 0;
  for (const auto* named : ordered) {
    SafetensorsEntry entry;
    entry.name = named->first;
    entry.type = safetensors_type_of(named->second.scalar_type());
    entry.shape = named->second.sizes().vec();
    entry.begin = offset;
    offset += named->second.nbytes();
    entry.end = offset;
    header.entries.push_back(std::move(entry));
  }
  const std::string text = format_safetensors_header(header);
  const uint64_t header_bytes = text.size();

  AtomicFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), text.size());
  for (const auto* named : ordered) {
    const at::Tensor row_major =
        named->second.detach().to(at::kCPU).contiguous();
    file.write(row_major.data_ptr(), row_major.nbytes());
  }
  file.commit();
}

}  // namespace headroom
