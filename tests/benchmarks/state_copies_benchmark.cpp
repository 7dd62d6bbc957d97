// Measures the cost of the copy of its state that a rank makes for its buddy
// after each commit: the milliseconds for which the step makes the host wait,
// and the bytes. ZeRO and pipelines need this copy, ZeRO 0 does not.
//
//   benchmark_state_copies [--device 0,0] [--cfg yolov5s] [--img 640]
//                          [--batch 16] [--precision bf16] [--steps 10]
//                          [--zero 0,1]
//
// The two ranks are processes, each on its own device of the list. They use
// NCCL for the devices and Gloo for the host. Two ranks may share a device.
// Prints a line of JSON for each stage of ZeRO.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/rank_training.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/run/run_device.h"

namespace headroom {
namespace {

constexpr int kRanks = 2;
constexpr int kWarmUp = 3;

struct Request {
  configs::RunConfig config;
  std::vector<std::string> devices = {"0", "0"};
  std::vector<int> stages = {0, 1};
  int steps = 10;
};

nlohmann::ordered_json measure(const configs::RunConfig& config, int steps,
                               const devices::ComputeDevice& device,
                               collectives::Communicator& world) {
  RankTraining training(config, plan_of_synthetic_run(config), world,
                        /*more_boxes_per_image=*/0, device);
  training.keep_batch();
  // As in a run, no copies are made if the peers hold the same state.
  std::unique_ptr<checkpoint::PeerReplicas> buddies;
  if (config.zero_stage > 0) {
    buddies = std::make_unique<checkpoint::PeerReplicas>(world, /*shift=*/1);
  }
  std::vector<double> all, copies;
  for (int step = -kWarmUp; step < steps; ++step) {
    world.barrier();
    const double computed = seconds_of([&] { training.step(); });
    const double copied = seconds_of([&] {
      if (!buddies) return;
      buddies->after_commit(training.state());
      // A run too waits for the rest of the copy before its next step.
      buddies->settle();
    });
    if (step < 0) continue;
    copies.push_back(1e3 * copied);
    all.push_back(1e3 * (computed + copied));
  }
  const int64_t bytes = buddies ? buddies->newest().numel() : 0;
  return {{"zero", config.zero_stage},         {"cfg", config.cfg},
          {"batch", config.global_batch_size}, {"step_ms", median(all)},
          {"after_commit_ms", median(copies)}, {"copied_bytes", bytes}};
}

int run(const Request& request, collectives::Communicator& hosts) {
  const int rank = hosts.rank();
  // NCCL refuses two ranks on one device of one host.
  setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 1);
  configs::RunConfig config = request.config;
  config.device = request.devices.at(static_cast<size_t>(rank));
  const run::ChosenDevice chosen = run::choose_device(config, 0, 1);
  devices::DeviceCommunicatorOptions options;
  options.device = chosen.device.device().index();
  options.may_share_devices = true;
  options.timeout = std::chrono::seconds(60);
  const auto world = collectives::make_device_host_communicator(
      hosts.split(0, rank), chosen.device.api()->connect_ranks(hosts, options));
  for (const int stage : request.stages) {
    config.zero_stage = stage;
    const nlohmann::ordered_json line =
        measure(config, request.steps, chosen.device, *world);
    if (rank == 0) std::cout << line.dump() << std::endl;
  }
  world->barrier();
  return 0;
}

int benchmark(int argc, char** argv) {
  Request request;
  configs::RunConfig& config = request.config;
  config =
      synthetic_config("yolov5s", 640, 16, "data=" + std::to_string(kRanks));
  config.activations = "keep";
  CLI::App app("milliseconds and bytes of a state's copies");
  app.add_option("--device", request.devices)->delimiter(',')->expected(kRanks);
  add_network(app, config);
  app.add_option("--batch", config.global_batch_size);
  add_precision(app, config);
  app.add_option("--zero", request.stages)->delimiter(',');
  app.add_option("--steps", request.steps)->check(CLI::PositiveNumber);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("headroom-state-copies-" + std::to_string(getpid()));
  return run_benchmark(app, argc, argv, [&] {
    config.batch_norm_group_size = config.global_batch_size / kRanks;
    return run_forked_ranks(
        kRanks, folder,
        [&](collectives::Communicator& world) { return run(request, world); });
  });
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::benchmark(argc, argv); }
