#include "worker/tools/device_query.h"

#include <nlohmann/json.hpp>

#include "parallel/devices/compute_device.h"

namespace headroom::tools {

std::string devices_json() {
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const int count = plugin.api == nullptr ? 0 : plugin.api->device_count();
  for (int index = 0; index < count; ++index) {
    const devices::DeviceInfo device = plugin.api->describe(index);
    list.push_back({{"index", index},
                    {"uuid", device.uuid},
                    {"name", device.name},
                    {"compute_capability", device.compute_capability},
                    {"total_bytes", device.total_bytes}});
  }
  std::string reason = plugin.reason;
  if (list.empty() && reason.empty()) reason = "the plugin shows no device";
  const nlohmann::ordered_json answer = {{"devices", std::move(list)},
                                         {"reason", reason}};
  return answer.dump(-1, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace headroom::tools
