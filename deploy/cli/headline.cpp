#include "deploy/cli/headline.h"

#include <cstdint>
#include <filesystem>

#include "parallel/planner/model_layers.h"
#include "proto/version.h"

namespace headroom::cli {
namespace {

std::string by(int64_t height, int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

}  // namespace

std::string image_size_text(const configs::RunConfig& config,
                            const std::vector<layers::LayerCost>& layers) {
  const std::string asked = by(config.image_height, config.image_width);
  if (layers.empty()) return asked;
  const int64_t stride = layers::largest_stride(layers);
  const std::string used =
      by(layers::rounded_image_size(config.image_height, stride),
         layers::rounded_image_size(config.image_width, stride));
  return used == asked ? asked : used + " (rounded up from " + asked + ")";
}

std::string headline(const RunRequest& request) {
  const configs::RunConfig& config = request.config;
  const std::string model = config.cfg.empty() ? config.weights : config.cfg;
  return "headroom " + std::string(wire::kVersion) + " " + config.command +
         ": " + std::filesystem::path(model).filename().string() + ", " +
         image_size_text(config, planner::layers_for_plan(config)) +
         ", batch " + std::to_string(config.global_batch_size) +
         ", processes " + std::to_string(request.expected_workers()) + " x " +
         std::to_string(config.threads) +
         (config.threads == 1 ? " thread" : " threads") + "; results in " +
         request.run_directory;
}

}  // namespace headroom::cli
