#include "worker/pytorch_file/pytorch_file.h"

#include <array>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "parallel/base/check.h"
#include "worker/pytorch_file/module_tree.h"
#include "worker/pytorch_file/pickle.h"

namespace headroom::pytorch_file {
namespace {

using Type = PytorchFile::Type;

// A model's pickle has some hundred KB; an optimizer adds as much.
constexpr uint64_t kLargestPickle = 32 << 20;
constexpr size_t kMostDimensions = 8;

[[noreturn]] void refuse(const std::filesystem::path& path,
                         const std::string& what, const std::string& remedy) {
  throw Error("weights", path.string() + ": " + what, remedy);
}
[[noreturn]] void refuse(const std::filesystem::path& path,
                         const std::string& what) {
  refuse(path, what,
         "give a checkpoint as torch.save wrote it, or a .safetensors file");
}

const std::map<std::string, Type>& storage_types() {
  static const std::map<std::string, Type> all = {
      {"torch HalfStorage", Type::kHalf},
      {"torch BFloat16Storage", Type::kBfloat16},
      {"torch FloatStorage", Type::kFloat},
      {"torch DoubleStorage", Type::kDouble},
      {"torch ByteStorage", Type::kByte},
      {"torch CharStorage", Type::kChar},
      {"torch ShortStorage", Type::kShort},
      {"torch IntStorage", Type::kInt},
      {"torch LongStorage", Type::kLong},
      {"torch BoolStorage", Type::kBool}};
  return all;
}

// "best/data.pkl": PyTorch puts everything in one folder.
std::string find_folder(const std::filesystem::path& path,
                        const ZipArchive& archive) {
  std::string folder;
  for (const auto& [name, entry] : archive.entries()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    if (name.compare(slash + 1, std::string::npos, "data.pkl") == 0) {
      folder = name.substr(0, slash + 1);
    }
  }
  if (folder.empty()) {
    refuse(path, "it is a zip archive, but not one of torch.save");
  }
  if (archive.has(folder + "constants.pkl")) {
    refuse(path, "it is a TorchScript program, not a checkpoint",
           "give the checkpoint it was exported from");
  }
  return folder;
}

int64_t checked_product(int64_t a, int64_t b, bool& overflows) {
  int64_t product = 0;
  overflows |= __builtin_mul_overflow(a, b, &product);
  return product;
}

// Where the tensor's last element is within its storage, and how many there
// are; refuses what is no tensor of a file.
int64_t check_extent(const std::filesystem::path& path,
                     const PytorchFile::Tensor& tensor, int64_t available) {
  const std::string what = "tensor " + tensor.name;
  if (tensor.sizes.size() > kMostDimensions) {
    refuse(path, what + " has " + std::to_string(tensor.sizes.size()) +
                     " dimensions");
  }
  int64_t count = 1, last = tensor.offset;
  bool overflows = tensor.offset < 0;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    overflows |= tensor.sizes[i] < 0 || tensor.strides[i] < 0;
    count = checked_product(count, tensor.sizes[i], overflows);
    if (tensor.sizes[i] > 0) {
      const int64_t reach =
          checked_product(tensor.sizes[i] - 1, tensor.strides[i], overflows);
      overflows |= __builtin_add_overflow(last, reach, &last);
    }
  }
  if (overflows || (count > 0 && last >= available) || count > available) {
    refuse(path, what + " reaches beyond its storage of " +
                     std::to_string(available) + " elements");
  }
  return count;
}

std::vector<int64_t> integers_of(const PickleValue& tuple) {
  std::vector<int64_t> values;
  for (const PickleValue* item : tuple.items) values.push_back(item->integer);
  return values;
}

}  // namespace

int64_t bytes_of(Type type) {
  switch (type) {
    case Type::kByte:
    case Type::kChar:
    case Type::kBool:
      return 1;
    case Type::kHalf:
    case Type::kBfloat16:
    case Type::kShort:
      return 2;
    case Type::kFloat:
    case Type::kInt:
      return 4;
    case Type::kDouble:
    case Type::kLong:
      return 8;
  }
  return 0;
}

bool is_pytorch_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) return false;
  // A pipe would wait for its other end for ever.
  if (!std::filesystem::is_regular_file(status)) {
    refuse(path, "it is no regular file", "name a .safetensors or .pt file");
  }
  std::array<char, 8> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  const std::string_view begin(start.data(), start.size());
  return begin.substr(0, 4) == "PK\x03\x04" ||
         begin == "\x80\x02\x8a\nl\xfc\x9c\x46";
}

PytorchFile::PytorchFile(const std::filesystem::path& path)
    : path_(path), archive_([&] {
        std::array<char, 1> first{};
        std::ifstream(path, std::ios::binary).read(first.data(), 1);
        if (first[0] == '\x80') {
          refuse(path, "it is in the format of PyTorch before 1.6",
                 "save it again with a newer PyTorch, or give .safetensors");
        }
        return ZipArchive(path);
      }()) {
  const std::string folder = find_folder(path, archive_);
  const std::string name = folder + "data.pkl";
  if (const uint64_t bytes = archive_.find(name)->bytes;
      bytes > kLargestPickle) {
    refuse(path, "its pickle of " + std::to_string(bytes) +
                     " bytes is larger than any checkpoint's");
  }
  if (archive_.has(folder + "byteorder") &&
      archive_.read(folder + "byteorder") != "little") {
    refuse(path, "its numbers are not little-endian");
  }
  const std::string bytes = archive_.read(name);
  const std::string source = path.string() + ": data.pkl";
  const Pickle pickle = Pickle::parse(bytes, source);
  CheckpointContent content = read_checkpoint(pickle, source);
  part_ = content.part;
  model_ = content.model;
  class_names_ = std::move(content.class_names);
  epoch_ = content.epoch;

  uint64_t total_bytes = 0;
  for (const CheckpointContent::Tensor& found : content.tensors) {
    const std::vector<const PickleValue*>& parts = found.value->items;
    const PickleValue& storage = *parts[0];
    const auto type = storage_types().find(storage.text);
    if (type == storage_types().end()) {
      refuse(path, "tensor " + found.name + " is of type " + storage.text);
    }
    Tensor tensor{.name = found.name,
                  .type = type->second,
                  .sizes = integers_of(*parts[2]),
                  .strides = integers_of(*parts[3]),
                  .offset = parts[1]->integer,
                  .storage = folder + "data/" + storage.items[0]->text};
    const ZipArchive::Entry* const entry = archive_.find(tensor.storage);
    if (entry == nullptr) {
      refuse(path, "the storage of tensor " + tensor.name + " is missing");
    }
    const int64_t count = check_extent(
        path, tensor,
        static_cast<int64_t>(entry->bytes) / bytes_of(tensor.type));
    total_bytes += static_cast<uint64_t>(count * bytes_of(tensor.type));
    if (total_bytes > archive_.file_bytes()) {
      refuse(path, "its tensors claim more bytes than the file has");
    }
    tensors_.push_back(std::move(tensor));
  }
}

}  // namespace headroom::pytorch_file
