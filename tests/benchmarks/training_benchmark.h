// The parts that benchmarks of trainings share.
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "configs/options.h"
#include "configs/run_config.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/layout.h"
#include "tests/benchmarks/measures.h"
#include "worker/kernels/cpu/heap.h"

namespace headroom {

// Installs the allocators and hooks of a worker. Call it first in main().
inline void become_worker() {
  kernels::keep_freed_memory();
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
}

// A run on synthetic images.
inline configs::RunConfig synthetic_config(const std::string& model,
                                           int64_t image_size, int64_t images,
                                           const std::string& layout) {
  configs::RunConfig config;
  config.cfg = model;
  config.synthetic_input = true;
  config.image_height = config.image_width = image_size;
  config.global_batch_size = images;
  config.layout = plan::parse_layout(layout);
  return config;
}

// Adds --precision, which sets `config`; the default is bf16.
inline void add_precision(CLI::App& app, configs::RunConfig& config) {
  const auto set = [&config](const std::string& precision) {
    configs::set_from_text(config, *configs::find_key("precision"), precision);
  };
  set("bf16");
  app.add_option_function<std::string>("--precision", set);
}

// Adds --cfg and --img, which set `config`.
inline void add_network(CLI::App& app, configs::RunConfig& config) {
  app.add_option("--cfg", config.cfg);
  app.add_option_function<int64_t>("--img", [&config](int64_t size) {
    config.image_height = config.image_width = size;
  });
}

// Parses the command line and calls `run`, which returns the exit code.
inline int run_benchmark(CLI::App& app, int argc, char** argv,
                         const std::function<int()>& run) {
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Waits until the device has no work left.
inline void synchronize(const devices::ComputeDevice& device) {
  const c10::Device place = device.device();
  if (place.type() == c10::DeviceType::CUDA) {
    c10::impl::getDeviceGuardImpl(place.type())
        ->synchronizeDevice(place.index());
  } else {
    // The copy to the CPU waits for all earlier work of the device.
    at::ones({1}, device.options(at::kFloat)).cpu();
  }
}

// Starts the work on all ranks together. Returns the seconds of the slowest,
// the same number on every rank.
template <typename Work>
double slowest_seconds(collectives::Communicator& world, const Work& work) {
  world.barrier();
  const at::Tensor seconds = at::full({1}, seconds_of(work), at::kDouble);
  world.all_reduce(seconds, collectives::ReduceOp::kMax);
  return *seconds.const_data_ptr<double>();
}

}  // namespace headroom
