#include "worker/run/choose_device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/devices/device_plugin.h"
#include "worker/kernels/cpu/device_batch_norm.h"
#include "worker/loss/device_level_loss.h"

namespace headroom::run {
namespace {

void set_arithmetic(const configs::RunConfig& config) {
  at::Context& context = at::globalContext();
  // LibTorch's defaults differ: cuDNN's products are TF32, cuBLAS's are not.
  context.setAllowTF32CuDNN(config.tf32);
  context.setAllowTF32CuBLAS(config.tf32);
  // Each shape's algorithm is what cuDNN's heuristics say, not what was fastest
  // when it was tried: the same in every process, and no trial's workspaces.
  context.setBenchmarkCuDNN(false);
  if (!config.deterministic) return;
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Memory that is written before it is read need not be filled first.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace

ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks) {
  const std::vector<int> cards = parse_device_list(config.device);
  if (cards.empty()) return {};
  const int index =
      card_of_rank(cards, local_rank, local_ranks, config.share_devices);
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  const auto refuse = [&](const std::string& why) {
    return Error("device", "--device " + config.device + ": " + why,
                 "use --device cpu");
  };
  if (plugin.api == nullptr) throw refuse(plugin.reason);
  const int count = plugin.api->device_count();
  if (count == 0) throw refuse("there is no device, or no driver for one");
  if (index >= count) {
    throw refuse("there is no device " + std::to_string(index) +
                 "; there are " + std::to_string(count) + ", counted from 0");
  }
  kernels::set_map_kernels(plugin.api->device_type(), &plugin.api->kernels());
  loss::set_loss_kernels(plugin.api->device_type(), &plugin.api->kernels());
  set_arithmetic(config);
  const devices::ComputeDevice chosen(*plugin.api, index);
  const std::optional<devices::DeviceUse> before = plugin.api->use_of(index);
  // Else a process would also take its share of the first card.
  c10::impl::getDeviceGuardImpl(chosen.device().type())
      ->setDevice(chosen.device());
  plugin.api->free_bytes(index);  // creates the context
  return {chosen,
          memory::footprint_of_context(before, plugin.api->use_of(index))};
}

}  // namespace headroom::run
