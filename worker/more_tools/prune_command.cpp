// headroom prune: removes the least important channels from a file of weights
// (worker/more_tools/channel_pruning.h).
#include <ATen/Parallel.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "configs/layers/model_table.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/progress.h"
#include "parallel/base/units.h"
#include "worker/more_tools/channel_pruning.h"
#include "worker/tools/tool_command.h"
#include "worker/validation/validate.h"
#include "worker/weights/open_weights.h"
#include "worker/weights/weights_file.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

struct PruneRequest {
  std::string weights, cfg, data, image_size;
  fs::path output;
  double share = 0;
  int64_t batch = 0;
};

void print_layers(const PrunedModel& pruned) {
  std::puts("layer  module  channels");
  for (const PrunedModel::Layer& layer : pruned.layers) {
    std::printf("%3zu  %-6s  %lld -> %lld\n", layer.index,
                pruned.table.layers[layer.index].module.c_str(),
                static_cast<long long>(layer.before),
                static_cast<long long>(layer.after));
  }
}

void print_share(const char* what, int64_t before, int64_t after) {
  std::printf("%s %lld -> %lld (%.3f)\n", what, static_cast<long long>(before),
              static_cast<long long>(after),
              static_cast<double>(after) / static_cast<double>(before));
}

const std::string kFirstLine =
    "# Written by headroom prune: the channels that are left.";

// Throws Error if the file exists and was not written by this command.
void check_table_file(const fs::path& path) {
  std::string first_line;
  std::ifstream file(path);
  if (!file || !std::getline(file, first_line) || first_line == kFirstLine) {
    return;
  }
  throw Error("prune",
              "the table would go to " + path.string() +
                  ", which is there and was not written by headroom prune",
              "give another --output");
}

void write_table(const fs::path& path, const PrunedModel& pruned) {
  std::string text = kFirstLine + "\n";
  for (const auto& [module, form] : pruned.forms) {
    text += "# " + module + ": " + form + ".\n";
  }
  write_whole_file(path, text + layers::model_table_text(pruned.table));
}

int prune(const PruneRequest& request) {
  const fs::path& output = request.output;
  std::error_code ignored;
  if (fs::equivalent(output, request.weights, ignored)) {
    throw Error("prune", output.string() + " is the file of weights itself",
                "give another name with --output");
  }
  if (output.extension() != ".safetensors") {
    throw Error("prune", "--output " + output.string() + " is no .safetensors",
                "give a name that ends so");
  }
  require_folder_of(output, "prune", "--output");
  fs::path table_file = output;
  table_file.replace_extension(".yaml");
  check_table_file(table_file);
  weights::require_replaceable_weights(
      output, "prune", "move it away, or give another --output");
  const PixelSize size =
      network_size(request.image_size, request.weights, !request.data.empty());
  const weights::OpenedWeights opened =
      weights::open_weights(request.weights, request.cfg);
  PrunedModel pruned =
      prune_channels(opened.table, *opened.model, request.share);
  pruned.table.name = output.stem().string();
  auto metadata = layers::model_metadata(pruned.table.name, pruned.table);
  metadata["format"] = "headroom-weights";
  for (const auto& [key, value] : opened.metadata) {
    if (key != "model" && key != "table") metadata[key] = value;
  }
  weights::save_weights(output, pruned.model->state(), metadata);
  write_table(table_file, pruned);

  print_layers(pruned);
  print_share("channels", pruned.channels_before, pruned.channels_after);
  print_share("parameters", pruned.parameters_before, pruned.parameters_after);
  std::printf("%s, %s\n", output.c_str(), table_file.c_str());
  if (request.data.empty()) return 0;
  const auto score = [&](const char* what, model::LayerGraph& model) {
    std::fflush(stdout);
    ToolProgress progress;
    return validation::describe(validation::score_network(
        model, {.data = request.data,
                .weights = request.weights,
                .cfg = request.cfg,
                .height = size.height,
                .width = size.width,
                .batch = request.batch,
                .image_done = [&](int64_t all) { progress.step(what, all); }}));
  };
  std::printf("before: %s\n", score("before", *opened.model).c_str());
  std::printf("after:  %s, not fine-tuned yet\n",
              score("after", *pruned.model).c_str());
  return 0;
}

}  // namespace

int prune_command(int argc, char** argv) {
  PruneRequest request;
  int threads = 0;
  parse_arguments({{"--weights", &request.weights},
                   {"--cfg", &request.cfg},
                   {"--share", &request.share},
                   {"--output", &request.output},
                   {"--data", &request.data},
                   {"--img", &request.image_size},
                   {"--batch", &request.batch},
                   {"--threads", &threads}},
                  argc, argv);
  if (threads > 0) at::set_num_threads(threads);
  return prune(request);
}

}  // namespace headroom::tools
