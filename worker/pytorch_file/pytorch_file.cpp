#include "worker/pytorch_file/pytorch_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "worker/pytorch_file/pickle.h"

namespace headroom::pytorch_file {
namespace {

using Type = PytorchFile::Type;
using Kind = PickleValue::Kind;

// --- The tensors of a pickled checkpoint by their state names
//
// YOLOv5 and ultralytics pickle whole module objects: a module's state has
// _parameters, _buffers and _modules. Walking them gives PyTorch's state dict.
// A checkpoint's averaged weights ("ema") are preferred to "model"; a bare
// state dict is used directly.

struct CheckpointContent {
  struct Tensor {
    std::string name;
    const PickleValue* value = nullptr;  // a kTensor
  };
  std::vector<Tensor> tensors;  // state-dict order, distinct names
  std::string part;             // "ema", "model", "" for a bare state dict
  std::string model;            // "yolov5n"; "" if unknown
  std::string network;          // "YOLO11n (detection)"; "" if unknown
  std::vector<std::string> class_names;
  int64_t epoch = -1;
};

// Limits for visiting modules. A shared module is visited under each of its
// names, and a pickle can contain exponentially many names.
constexpr int64_t kMostVisits = 1'000'000;
constexpr int kDeepest = 64;
constexpr size_t kLongestName = 1024;

[[noreturn]] void refuse_checkpoint(const std::string& source,
                                    const std::string& what) {
  throw Error("weights", source + ": " + what,
              "give a checkpoint of YOLOv5 or ultralytics, or .safetensors");
}

const PickleValue* attribute(const PickleValue& record, std::string_view key) {
  return record.state == nullptr ? nullptr : record.state->at(key);
}

class Walk {
 public:
  Walk(const std::string& source, CheckpointContent& content)
      : source_(source), content_(content) {}

  void module(const PickleValue& value, const std::string& prefix, int depth) {
    if (depth > kDeepest)
      refuse_checkpoint(source_, "its modules nest without end");
    const PickleValue* const hidden =
        attribute(value, "_non_persistent_buffers_set");
    if (const PickleValue* own = attribute(value, "_parameters")) {
      tensors(*own, prefix, nullptr);
    }
    if (const PickleValue* own = attribute(value, "_buffers")) {
      tensors(*own, prefix, hidden);
    }
    const PickleValue* const children = attribute(value, "_modules");
    if (children == nullptr || !children->is(Kind::kDict)) return;
    for (size_t i = 0; i + 1 < children->items.size(); i += 2) {
      const PickleValue& name = *children->items[i];
      const PickleValue& child = *children->items[i + 1];
      if (name.is(Kind::kText) && child.is(Kind::kRecord)) {
        visit();
        module(child, joined(prefix, name.text) + ".", depth + 1);
      }
    }
  }

  void tensors(const PickleValue& dict, const std::string& prefix,
               const PickleValue* hidden) {
    if (!dict.is(Kind::kDict)) return;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      visit();
      const PickleValue& name = *dict.items[i];
      const PickleValue& value = *dict.items[i + 1];
      if (!name.is(Kind::kText) || !value.is(Kind::kTensor)) continue;
      if (hidden != nullptr && contains(*hidden, name.text)) continue;
      const std::string full = joined(prefix, name.text);
      if (!seen_.insert(full).second) {
        refuse_checkpoint(source_, "tensor " + full + " is there twice");
      }
      content_.tensors.push_back({full, &value});
    }
  }

 private:
  void visit() {
    if (++visits_ > kMostVisits) {
      refuse_checkpoint(source_, "its modules share each other without end");
    }
  }
  std::string joined(const std::string& prefix, const std::string& name) {
    if (prefix.size() + name.size() > kLongestName) {
      refuse_checkpoint(source_, cat("a tensor's name is longer than ",
                                     kLongestName, " characters"));
    }
    return prefix + name;
  }
  static bool contains(const PickleValue& set, const std::string& name) {
    for (const PickleValue* item : set.items) {
      if (item->is(Kind::kText) && item->text == name) return true;
    }
    return false;
  }

  const std::string& source_;
  CheckpointContent& content_;
  std::set<std::string> seen_;
  int64_t visits_ = 0;
};

double number(const PickleValue* value) {
  if (value == nullptr) return NAN;
  if (value->is(Kind::kReal)) return value->real;
  return value->is(Kind::kInteger) ? static_cast<double>(value->integer) : NAN;
}

size_t length(const PickleValue* value) {
  return value != nullptr && value->is(Kind::kList) ? value->items.size() : 0;
}

// A module's `yaml` does not name the model. Returns the name of the shipped
// model with the same factors and number of layers. The later comparison of
// tensor names and shapes detects a wrong result.
std::string model_name(const PickleValue* yaml) {
  struct Factors {
    double depth, width;
    char letter;
  };
  static constexpr std::array<Factors, 5> kSizes = {{{0.33, 0.25, 'n'},
                                                     {0.33, 0.50, 's'},
                                                     {0.67, 0.75, 'm'},
                                                     {1.0, 1.0, 'l'},
                                                     {1.33, 1.25, 'x'}}};
  if (yaml == nullptr) return "";
  const size_t layers = length(yaml->at("backbone")) + length(yaml->at("head"));
  const std::string suffix = layers == 25 ? "" : "6";
  if (layers != 25 && layers != 34) return "";
  for (const Factors& size : kSizes) {
    if (number(yaml->at("depth_multiple")) == size.depth &&
        number(yaml->at("width_multiple")) == size.width) {
      return std::string("yolov5") + size.letter + suffix;
    }
  }
  return "";
}

// What a module of this class is trained for.
std::string task_of(const std::string& module_class) {
  constexpr std::array<std::array<std::string_view, 2>, 4> kTasks = {
      {{"Segment", "segmentation"},
       {"Pose", "pose"},
       {"Classif", "classification"},
       {"OBB", "oriented boxes"}}};
  for (const auto& [part, task] : kTasks) {
    if (module_class.find(part) != std::string::npos) return std::string(task);
  }
  return "detection";
}

// Describes a module by the file name of its table, such as "yolo11n-seg.yaml".
// YOLOv5 stores that name beside the table, ultralytics in the table. Some
// versions of ultralytics omit the size ("yolo11.yaml") and store it in
// `scale`. Returns "" for detectors of YOLOv5, which may have a user's own
// table.
std::string network_name(const PickleValue& module) {
  const std::string task = task_of(module.text);
  if (module.text.starts_with("models.") && task == "detection") return "";
  const PickleValue* const yaml = attribute(module, "yaml");
  const PickleValue* file = attribute(module, "yaml_file");
  if (file == nullptr && yaml != nullptr) file = yaml->at("yaml_file");
  if (file == nullptr || !file->is(Kind::kText)) return "";
  std::string name =
      short_line(std::filesystem::path(file->text).stem().string(), 60);
  const PickleValue* const scale =
      yaml == nullptr ? nullptr : yaml->at("scale");
  const size_t digits = name.find_first_of("0123456789");
  const size_t end = name.find_first_not_of("0123456789", digits);
  if (scale != nullptr && scale->is(Kind::kText) && digits < name.size() &&
      (end == std::string::npos || name[end] == '-')) {
    name.insert(std::min(end, name.size()), short_line(scale->text, 8));
  }
  if (name.starts_with("yolo")) name.replace(0, 4, "YOLO");
  return name + " (" + task + ")";
}

// Reads a list, or a dictionary from numbers to names in numeric order.
std::vector<std::string> names_of(const PickleValue* names) {
  std::vector<std::string> all;
  if (names == nullptr) return all;
  const bool is_dict = names->is(Kind::kDict);
  for (size_t i = is_dict ? 1 : 0; i < names->items.size();
       i += is_dict ? 2 : 1) {
    if (!names->items[i]->is(Kind::kText)) return {};
    if (is_dict &&
        number(names->items[i - 1]) != static_cast<double>(all.size())) {
      return {};
    }
    all.push_back(names->items[i]->text);
  }
  return all;
}

// `pickle` must outlive the result.
CheckpointContent read_checkpoint(const Pickle& pickle,
                                  const std::string& source) {
  CheckpointContent content;
  const PickleValue* model = &pickle.root();
  for (const char* part : {"ema", "model", "state_dict"}) {
    const PickleValue* const found = pickle.root().at(part);
    if (found == nullptr || found->is(Kind::kNone)) continue;
    content.part = part;
    model = found;
    break;
  }
  Walk walk(source, content);
  if (model->is(Kind::kRecord)) {
    walk.module(*model, "", 0);
    content.model = model_name(attribute(*model, "yaml"));
    content.network = network_name(*model);
    content.class_names = names_of(attribute(*model, "names"));
  } else {
    walk.tensors(*model, "", nullptr);
  }
  if (const PickleValue* const epoch = pickle.root().at("epoch")) {
    if (epoch->is(Kind::kInteger)) content.epoch = epoch->integer;
  }
  if (content.tensors.empty())
    refuse_checkpoint(source, "it holds no model's tensors");
  return content;
}

// --- The file

// A model's pickle has a few hundred KB; an optimizer adds as much.
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

// Finds the archive's folder, as in "best/data.pkl": PyTorch puts all entries
// into one folder.
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

// Checks that the tensor is inside its storage of `available` elements. Returns
// the number of the tensor's elements.
int64_t check_extent(const std::filesystem::path& path,
                     const PytorchFile::Tensor& tensor, int64_t available) {
  const std::string what = "tensor " + tensor.name;
  if (tensor.sizes.size() > kMostDimensions) {
    refuse(path, cat(what, " has ", tensor.sizes.size(), " dimensions"));
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
    refuse(path, cat(what, " reaches beyond its storage of ", available,
                     " elements"));
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
  // Reading a pipe could wait forever.
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
    refuse(path, cat("its pickle of ", bytes,
                     " bytes is larger than any checkpoint's"));
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
  network_ = content.network;
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
