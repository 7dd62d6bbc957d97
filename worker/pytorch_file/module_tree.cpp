#include "worker/pytorch_file/module_tree.h"

#include <array>
#include <cmath>
#include <set>

#include "parallel/base/check.h"

namespace headroom::pytorch_file {
namespace {

using Kind = PickleValue::Kind;

// Shared modules are visited under each of their names; a pickle can share
// them so that there are exponentially many.
constexpr int64_t kMostVisits = 1'000'000;
constexpr int kDeepest = 64;
constexpr size_t kLongestName = 1024;

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
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
    if (depth > kDeepest) refuse(source_, "its modules nest without end");
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
        refuse(source_, "tensor " + full + " is there twice");
      }
      content_.tensors.push_back({full, &value});
    }
  }

 private:
  void visit() {
    if (++visits_ > kMostVisits) {
      refuse(source_, "its modules share each other without end");
    }
  }
  std::string joined(const std::string& prefix, const std::string& name) {
    if (prefix.size() + name.size() > kLongestName) {
      refuse(source_, "a tensor's name is longer than " +
                          std::to_string(kLongestName) + " characters");
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

// The model file, which the module carries as `yaml`, says only its factors and
// layers; which shipped model these are is told from them. Whether it really is
// that model shows when names and shapes are compared.
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

// A list, or a dictionary from numbers to names, in the order of the numbers.
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

}  // namespace

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
    content.class_names = names_of(attribute(*model, "names"));
  } else {
    walk.tensors(*model, "", nullptr);
  }
  if (const PickleValue* const epoch = pickle.root().at("epoch")) {
    if (epoch->is(Kind::kInteger)) content.epoch = epoch->integer;
  }
  if (content.tensors.empty()) refuse(source, "it holds no model's tensors");
  return content;
}

}  // namespace headroom::pytorch_file
