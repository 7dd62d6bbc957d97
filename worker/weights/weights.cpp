#include "worker/weights/weights.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "configs/layers/detect_branches.h"
#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "worker/weights/weights_file.h"

namespace headroom::weights {
namespace {

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.is_floating_point() == b.is_floating_point();
}

[[noreturn]] void refuse(const std::filesystem::path& path,
                         const Safetensors& file, const std::string& what) {
  throw Error("weights",
              layers::with_network(path.string(), file.metadata) + ": " + what,
              "use weights of this very model, or start a training from them "
              "with --weights");
}

void check_strict(const std::filesystem::path& path, const Safetensors& file,
                  const model::NamedTensors& state) {
  std::set<std::string> names;
  for (const model::NamedTensor& entry : state) {
    names.insert(entry.name);
    const auto found = file.tensors.find(entry.name);
    if (found == file.tensors.end())
      refuse(path, file, "there is no tensor " + entry.name);
    const at::Tensor& stored = found->second;
    if (stored.sizes() != entry.tensor->sizes() ||
        !same_kind(stored, *entry.tensor))
      refuse(path, file,
             entry.name + " is " +
                 c10::str(stored.scalar_type(), " ", stored.sizes()) +
                 " but the model has " +
                 c10::str(entry.tensor->scalar_type(), " ",
                          entry.tensor->sizes()));
  }
  for (const auto& [name, tensor] : file.tensors)
    if (names.count(name) == 0)
      refuse(path, file, "the model has no tensor " + name);
}

// The number of the table's layer that has this tensor.
int64_t table_layer_of(const std::string& name) {
  return std::strtoll(name.c_str() + std::strlen("model."), nullptr, 10);
}

// A tensor of the convolution that ends in the classes of the finest level.
std::string class_tensor(bool has_anchors, int64_t head, const char* which) {
  return cat("model.", head, has_anchors ? ".m.0." : ".cv3.0.2.", which);
}

// The classes of the file's head and of the model's head. The last convolution
// of a level has for each anchor `fields` rows and then a row for each class. A
// head without anchors counts as one anchor without fields.
struct HeadClasses {
  int64_t anchors = 0, fields = 0;
  int64_t there = 0, here = 0;  // number of classes in the file, in the model
  // For each class of the model, its number in the file, or -1. If empty, the
  // head is loaded completely or not at all.
  std::vector<int64_t> origins;
};

bool are_distinct(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() ==
         names.size();
}

// Returns the position in the file of each class of the model, found by name;
// -1 if the file does not have it. Returns an empty list if the lists of names
// are equal, have no name in common, or have a name twice.
std::vector<int64_t> origins_of(const std::vector<std::string>& there,
                                const std::vector<std::string>& here) {
  std::vector<int64_t> origins;
  if (there == here || !are_distinct(there) || !are_distinct(here)) return {};
  bool is_any_shared = false;
  for (const std::string& name : here) {
    const auto found = std::ranges::find(there, name);
    is_any_shared |= found != there.end();
    origins.push_back(found == there.end() ? -1 : found - there.begin());
  }
  return is_any_shared ? origins : std::vector<int64_t>();
}

// `head`: the number of the head's layer in the table. Returns nullopt if the
// file has no head over the same maps and numbers of anchors.
std::optional<HeadClasses> compare_heads(const Safetensors& file,
                                         const LoadOptions& options,
                                         const model::LayerGraph& graph,
                                         int64_t head) {
  const bool has_anchors = graph.has_anchors();
  HeadClasses classes;
  classes.anchors =
      has_anchors ? std::ssize(graph.levels().front().anchors) : 1;
  classes.fields = has_anchors ? kFirstClass : 0;
  classes.here = graph.num_classes();
  const auto bias = file.tensors.find(class_tensor(has_anchors, head, "bias"));
  if (bias == file.tensors.end()) return std::nullopt;
  const int64_t outputs = bias->second.numel();
  classes.there = outputs / classes.anchors - classes.fields;
  if (outputs % classes.anchors != 0 || classes.there < 1) return std::nullopt;
  const std::vector<std::string> names = class_names_of(file.metadata);
  if (std::ssize(names) == classes.there &&
      std::ssize(options.class_names) == classes.here) {
    classes.origins = origins_of(names, options.class_names);
  }
  return classes;
}

// Whether a parameter of the head has rows of classes.
bool has_classes(const std::string& name, bool has_anchors) {
  return has_anchors ||
         (name.find(".cv3.") != std::string::npos &&
          (name.ends_with(".2.weight") || name.ends_with(".2.bias")));
}

// Whether the branch of the classes has the same width in the file and in the
// model. The width of a branch without anchors depends on the number of
// classes, and rows of classes are of use only with their branch.
bool has_width(const model::NamedTensors& state, const Safetensors& file,
               const std::string& weight) {
  const auto stored = file.tensors.find(weight);
  const auto made = std::ranges::find(state, weight, &model::NamedTensor::name);
  return stored != file.tensors.end() && made != state.end() &&
         stored->second.sizes().slice(1) == made->tensor->sizes().slice(1);
}

// Copies rows from `stored` to `taken`, which are the same tensor of a head in
// the file and in the model: the rows of boxes, objectness and the classes that
// both have. Returns false if the tensors' shapes do not fit together.
bool take_by_name(const at::Tensor& stored, const HeadClasses& classes,
                  const at::Tensor& taken) {
  const auto is_of = [&classes](const at::Tensor& tensor, int64_t count) {
    return tensor.dim() > 0 &&
           tensor.size(0) == classes.anchors * (classes.fields + count);
  };
  if (!is_of(stored, classes.there) || !is_of(taken, classes.here) ||
      stored.sizes().slice(1) != taken.sizes().slice(1)) {
    return false;
  }
  const at::Tensor from =
      stored.unflatten(0, {classes.anchors, classes.fields + classes.there});
  const at::Tensor to =
      taken.unflatten(0, {classes.anchors, classes.fields + classes.here});
  to.narrow(1, 0, classes.fields).copy_(from.narrow(1, 0, classes.fields));
  for (int64_t i = 0; i < classes.here; ++i) {
    const int64_t origin = classes.origins[static_cast<size_t>(i)];
    if (origin < 0) continue;
    to.select(1, classes.fields + i)
        .copy_(from.select(1, classes.fields + origin));
  }
  return true;
}

// For example "80 classes -> 3, by name: 'car'; started anew: 'boat'".
std::string names_text(const HeadClasses& classes,
                       const std::vector<std::string>& here) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> taken, fresh;
  for (size_t i = 0; i < here.size(); ++i) {
    (classes.origins[i] < 0 ? fresh : taken)
        .push_back("'" + printable(here[i]) + "'");
  }
  const auto same = [](const std::string& name) { return name; };
  if (fresh.empty() && classes.there == classes.here) {
    return cat(classes.here, " classes in another order, moved by name");
  }
  return cat(
      counted(classes.there, "class"), " -> ", classes.here,
      ", by name: ", first_of(taken, kNamed, same),
      fresh.empty() ? "" : "; started anew: " + first_of(fresh, kNamed, same));
}

// Why an entry is not taken from the file; `stored` is nullptr if the file does
// not have it.
std::string difference(const model::NamedTensor& entry,
                       const at::Tensor* stored) {
  if (stored == nullptr) return entry.name + " is not there";
  if (stored->sizes() == entry.tensor->sizes()) {
    return same_kind(*stored, *entry.tensor)
               ? "anchors: the run's own"
               : entry.name + " is of another type";
  }
  return c10::str(entry.name, " is ", stored->sizes(), " there and ",
                  entry.tensor->sizes(), " here");
}

}  // namespace

void save_weights(const std::filesystem::path& path,
                  const model::NamedTensors& state,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const model::NamedTensor& entry : state)
    tensors.emplace_back(entry.name, *entry.tensor);
  write_safetensors(path, tensors, metadata);
}

std::string to_string(const LoadReport& report,
                      const std::filesystem::path& path) {
  constexpr size_t kNamed = 3;
  const std::string text = cat("transferred ", report.transferred, " of ",
                               report.total, " tensors from ", path.string());
  if (report.layers.empty()) return text;
  return text + "; " +
         first_of(report.layers, kNamed,
                  [](const std::string& layer) { return layer; }) +
         (report.layers.size() > kNamed ? " layers" : "");
}

LoadReport load_weights(const std::filesystem::path& path,
                        model::LayerGraph& graph, const LoadOptions& options) {
  return load_weights(path, read_weights_file(path), graph, options);
}

LoadReport load_weights(const std::filesystem::path& path,
                        const Safetensors& file, model::LayerGraph& graph,
                        const LoadOptions& options) {
  const model::NamedTensors state = graph.state();
  if (options.mode == LoadMode::kStrict) check_strict(path, file, state);

  const at::NoGradGuard no_grad;
  LoadReport report;
  report.total = static_cast<int64_t>(state.size());
  const bool has_anchors = graph.has_anchors();
  const int64_t head = table_layer_of(state.back().name);
  std::optional<HeadClasses> classes;
  if (options.mode == LoadMode::kTransfer) {
    classes = compare_heads(file, options, graph, head);
  }
  if (classes && !has_anchors &&
      !has_width(state, file, class_tensor(has_anchors, head, "weight"))) {
    classes->origins.clear();
  }
  bool is_by_name = false;
  std::map<int64_t, std::vector<std::string>> differences;  // keyed by layer
  for (const model::NamedTensor& entry : state) {
    const auto found = file.tensors.find(entry.name);
    const at::Tensor* const stored =
        found == file.tensors.end() ? nullptr : &found->second;
    const bool kept = options.mode == LoadMode::kTransfer &&
                      options.keep_anchors &&
                      entry.name.find("anchor") != std::string::npos;
    const bool has_kind =
        !kept && stored != nullptr && same_kind(*stored, *entry.tensor);
    const int64_t layer = table_layer_of(entry.name);
    if (has_kind && layer == head && entry.is_parameter() && classes &&
        !classes->origins.empty() && has_classes(entry.name, has_anchors) &&
        take_by_name(*stored, *classes, *entry.tensor)) {
      is_by_name = true;
    } else if (has_kind && stored->sizes() == entry.tensor->sizes()) {
      entry.tensor->copy_(*stored);
    } else {
      report.skipped.push_back(entry.name);
      differences[layer].push_back(difference(entry, stored));
      continue;
    }
    ++report.transferred;
  }
  if (is_by_name) {
    differences[head].insert(differences[head].begin(),
                             names_text(*classes, options.class_names));
  } else if (classes && classes->there != classes->here &&
             differences.contains(head)) {
    const char* const branch = has_anchors ? ".m." : ".cv3.";
    std::erase_if(differences[head], [branch](const std::string& text) {
      return text.find(branch) != std::string::npos;
    });
    differences[head].insert(differences[head].begin(),
                             cat(counted(classes->there, "class"), " -> ",
                                 classes->here, ", started anew"));
  }
  for (const auto& [layer, texts] : differences) {
    // Two texts for the head: its classes, and anchors that the run keeps.
    const bool has_both = layer == head && texts.size() == 2;
    const auto same = [](const std::string& text) { return text; };
    report.layers.push_back(
        cat("layer ", layer, layer == head ? " (Detect)" : "", ": ",
            has_both ? joined(texts, "; ") : first_of(texts, 1, same)));
  }
  if (report.transferred == 0)
    refuse(path, file,
           cat("none of its ", file.tensors.size(), " tensors fits the model"));
  report.metadata = file.metadata;
  return report;
}

std::optional<int64_t> head_classes(const Safetensors& file,
                                    const layers::ModelTable& table) {
  const bool has_anchors = layers::has_anchors(table);
  const auto bias = file.tensors.find(
      class_tensor(has_anchors, std::ssize(table.layers) - 1, "bias"));
  if (bias == file.tensors.end()) return std::nullopt;
  const int64_t outputs = bias->second.numel();
  if (!has_anchors) return outputs > 0 ? std::optional(outputs) : std::nullopt;
  // The head's last convolution has anchors x (5 + classes) outputs.
  const auto anchors = static_cast<int64_t>(table.anchors.front().size());
  if (anchors == 0 || outputs % anchors != 0 || outputs / anchors < 6) {
    return std::nullopt;
  }
  return outputs / anchors - 5;
}

}  // namespace headroom::weights
