#include "configs/layers/model_record.h"

#include <algorithm>

#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::layers {
namespace {

std::string change(const std::string& what, const std::string& before,
                   const std::string& now) {
  if (before == now) return "";
  return what + " was " + before + " and is now " + now;
}

std::string layer_change(size_t index, const ModelTable& before,
                         const ModelTable& now) {
  const std::string name = cat("layer ", index);
  if (index >= now.layers.size()) {
    return name + " was " + layer_text(before.layers[index]) + " and is gone";
  }
  if (index >= before.layers.size()) {
    return name + " is new: " + layer_text(now.layers[index]);
  }
  return change(name, layer_text(before.layers[index]),
                layer_text(now.layers[index]));
}

std::string first_of(const std::vector<std::string>& changes) {
  const auto found = std::ranges::find_if(
      changes, [](const std::string& each) { return !each.empty(); });
  return found == changes.end() ? "" : *found;
}

std::string max_channels_text(const ModelTable& table) {
  return table.max_channels ? std::to_string(*table.max_channels) : "none";
}

}  // namespace

std::optional<ModelTable> recorded_model(
    const std::filesystem::path& run_directory) {
  const std::filesystem::path file = run_directory / run_files::kModel;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return parse_model_table(yaml::read_config_file(file, "resume"),
                           file.string());
}

std::string model_difference(const ModelTable& before, const ModelTable& now) {
  for (size_t i = 0; i < std::max(before.layers.size(), now.layers.size());
       ++i) {
    const std::string found = layer_change(i, before, now);
    if (!found.empty()) return found;
  }
  return first_of(
      {change("depth_multiple", yaml::exact_text(before.depth_multiple),
              yaml::exact_text(now.depth_multiple)),
       change("width_multiple", yaml::exact_text(before.width_multiple),
              yaml::exact_text(now.width_multiple)),
       change("max_channels", max_channels_text(before),
              max_channels_text(now)),
       change("channel_multiple", std::to_string(before.channel_multiple),
              std::to_string(now.channel_multiple)),
       change("ch", std::to_string(before.input_channels),
              std::to_string(now.input_channels)),
       change("activation", activation_text(before.activation),
              activation_text(now.activation)),
       change("anchors", to_text(before.anchors), to_text(now.anchors))});
}

std::string how_to_start_anew(const std::filesystem::path& run_directory) {
  const std::filesystem::path weights =
      run_directory / run_files::kWeights / run_files::kLastWeights;
  std::error_code error;
  return std::filesystem::is_regular_file(weights, error)
             ? "start a new run with --weights " + shell_word(weights.string())
             : "start a new run without --resume";
}

void require_same_model(const ModelTable& recorded, const ModelTable& now,
                        const std::string& source,
                        const std::filesystem::path& run_directory) {
  const std::string difference = model_difference(recorded, now);
  if (difference.empty()) return;
  throw Error("resume",
              source + " is not the model that " + run_directory.string() +
                  " was begun with: " + difference,
              "go on with --cfg " +
                  shell_word((run_directory / run_files::kModel).string()) +
                  ", or " + how_to_start_anew(run_directory));
}

}  // namespace headroom::layers
