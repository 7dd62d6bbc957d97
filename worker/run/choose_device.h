// choose_device: where this rank computes, from what the run asks for and its
// place on the machine.
//
// Loads the plugin for devices, makes its kernels known to the model and the
// loss, and sets the arithmetic that the run asks for. It must come before
// LibTorch is first used (device_plugin.h).
//
// Threads: the main thread, once.
#pragma once

#include "configs/run_config.h"
#include "parallel/devices/compute_device.h"
#include "worker/memory/device_footprint.h"

namespace headroom::run {

struct ChosenDevice {
  devices::ComputeDevice device;
  memory::DeviceFootprint footprint;  // its context's; of the CPU nothing
};

// Creates the device's context. Throws Error (exit 2) that says why there is no
// such device.
ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks);

}  // namespace headroom::run
