#include "deploy/cli/process/node_cards.h"

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "configs/worker_start.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/host.h"
#include "parallel/base/device_list.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/plugin_library.h"
#include "parallel/base/text.h"
#include "parallel/nvml/nvml.h"

namespace headroom::cli {
namespace {

// Asks the worker program, because only it loads the plugin.
NodeCards cards_of_plugin() {
  constexpr auto kPatience = std::chrono::seconds(60);
  std::mutex mutex;
  std::string answer;
  ChildOptions options;
  options.name = "device query";
  options.command = {find_worker_program().string(), configs::kDevicesCommand};
  options.on_line = [&](const ChildLine& line) {
    const std::lock_guard lock(mutex);
    if (line.text.starts_with('{')) answer = line.text;
  };
  ChildProcess child(std::move(options));
  if (!child.wait(kPatience)) child.terminate(std::chrono::seconds(0));
  const std::lock_guard lock(mutex);
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  NodeCards found;
  if (!json.is_object() || !json.contains("devices")) {
    found.no_card_reason =
        "headroom-worker does not say which devices there are" +
        (child.telling_line().empty() ? "" : ": " + child.telling_line());
    return found;
  }
  for (const nlohmann::json& device : json["devices"]) {
    found.cards.push_back(
        {.index = device.value("index", 0),
         .uuid = device.value("uuid", ""),
         .bus_address = device.value("bus_address", ""),
         .name = device.value("name", ""),
         .compute_capability = device.value("compute_capability", 0),
         .total_bytes = device.value("total_bytes", int64_t{0}),
         .trouble = device.value("trouble", "")});
  }
  if (found.cards.empty()) {
    found.no_card_reason = json.value("reason", "there is no device");
  }
  return found;
}

NodeCards cards_of_driver() {
  NodeCards found;
  const nvml::Nvml driver;
  const std::vector<nvml::Card> cards = driver.cards();
  if (cards.empty()) {
    found.no_card_reason = driver.reason();
    if (driver.environment().visible_devices &&
        driver.reason().starts_with("CUDA_VISIBLE_DEVICES")) {
      found.unusable_cards = driver.reason();
    }
    return found;
  }
  const std::string plugin =
      plugin_path(kDevicePluginVariable, "libheadroom_cuda.so");
  if (!plugin_exists(plugin)) {
    found.no_card_reason = found.unusable_cards =
        cat("the driver has ", cards.size(), " x ", cards.front().name,
            ", but this build is for the CPU alone (there is no ", plugin,
            ": install the build for CUDA)");
    return found;
  }
  for (const nvml::Card& card : cards) {
    found.cards.push_back({.index = card.index,
                           .uuid = card.uuid,
                           .bus_address = card.bus_address,
                           .name = card.name,
                           .compute_capability = card.compute_capability,
                           .total_bytes = card.total_bytes,
                           .trouble = nvml::trouble_of(card)});
    found.lines.push_back(
        nvml::card_text(card, nvml::bytes_of_others(card, {}, 0)));
  }
  return found;
}

}  // namespace

NodeCards find_node_cards() {
  return std::getenv(kDevicePluginVariable) != nullptr ? cards_of_plugin()
                                                       : cards_of_driver();
}

coordinator::Node node_with(const NodeCards& cards, int num_workers) {
  coordinator::Node node;
  node.node_id = node.hostname = this_host_name();
  for (int k = 0; k < num_workers; ++k) {
    node.worker_ids.push_back(std::to_string(k));
  }
  node.cards = cards.cards;
  node.no_card_reason = cards.no_card_reason;
  node.unusable_cards = cards.unusable_cards;
  return node;
}

}  // namespace headroom::cli
