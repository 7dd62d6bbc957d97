#include "worker/weights/weights.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/weights/weights_file.h"

namespace headroom::weights {
namespace {

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.is_floating_point() == b.is_floating_point();
}

[[noreturn]] void refuse(const std::filesystem::path& path,
                         const std::string& what) {
  throw Error("weights", path.string() + ": " + what,
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
      refuse(path, "there is no tensor " + entry.name);
    const at::Tensor& stored = found->second;
    if (stored.sizes() != entry.tensor->sizes() ||
        !same_kind(stored, *entry.tensor))
      refuse(path, entry.name + " is " +
                       c10::str(stored.scalar_type(), " ", stored.sizes()) +
                       " but the model has " +
                       c10::str(entry.tensor->scalar_type(), " ",
                                entry.tensor->sizes()));
  }
  for (const auto& [name, tensor] : file.tensors)
    if (names.count(name) == 0) refuse(path, "the model has no tensor " + name);
}

// Why an entry is not taken from the file; `stored` is nullptr if the file does
// not have it.
std::string difference(const model::NamedTensor& entry,
                       const at::Tensor* stored) {
  if (stored == nullptr) return entry.name + " is not there";
  if (stored->sizes() == entry.tensor->sizes()) {
    return entry.name + (same_kind(*stored, *entry.tensor)
                             ? " is the model's own"
                             : " is of another type");
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
  std::string text = cat("Transferred ", report.transferred, "/", report.total,
                         " items from ", path.string());
  if (report.differences.empty()) return text;
  return text + "; left as they were: " +
         first_of(report.differences, kNamed,
                  [](const std::string& name) { return name; });
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
  for (const model::NamedTensor& entry : state) {
    const auto found = file.tensors.find(entry.name);
    const bool kept = options.mode == LoadMode::kTransfer &&
                      options.keep_anchors &&
                      entry.name.find("anchor") != std::string::npos;
    if (kept || found == file.tensors.end() ||
        found->second.sizes() != entry.tensor->sizes() ||
        !same_kind(found->second, *entry.tensor)) {
      report.skipped.push_back(entry.name);
      report.differences.push_back(difference(
          entry, found == file.tensors.end() ? nullptr : &found->second));
      continue;
    }
    entry.tensor->copy_(found->second);
    ++report.transferred;
  }
  if (report.transferred == 0)
    refuse(path,
           cat("none of its ", file.tensors.size(), " tensors fits the model"));
  report.metadata = file.metadata;
  return report;
}

std::optional<int64_t> head_classes(const Safetensors& file,
                                    const layers::ModelTable& table) {
  // The head's last convolution has anchors x (5 + classes) outputs.
  const auto bias =
      file.tensors.find(cat("model.", table.layers.size() - 1, ".m.0.bias"));
  if (bias == file.tensors.end() || table.anchors.empty()) return std::nullopt;
  const int64_t outputs = bias->second.numel();
  const auto anchors = static_cast<int64_t>(table.anchors.front().size());
  if (anchors == 0 || outputs % anchors != 0 || outputs / anchors < 6) {
    return std::nullopt;
  }
  return outputs / anchors - 5;
}

}  // namespace headroom::weights
