// The cost of a rank's copy of its state for its buddy after each commit, which
// ZeRO and pipelines make and ZeRO 0 does not: milliseconds of the host that
// the step waits for, and bytes.
//
//   benchmark_state_copies [--device 0,0] [--cfg yolov5s] [--img 640]
//                          [--batch 16] [--precision bf16] [--steps 10]
//                          [--zero 0,1]
//
// Two ranks as processes, each on its device of the list, over NCCL and, for
// the host, Gloo: two may share one. A line of JSON for each stage of ZeRO.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/options.h"
#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "parallel/plan/layout.h"
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
  std::string precision = "bf16";
  std::vector<int> stages = {0, 1};
  int steps = 10;
};

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin)
      .count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::ordered_json measure(const configs::RunConfig& config, int steps,
                               const devices::ComputeDevice& device,
                               collectives::Communicator& world) {
  RankTraining training(config, plan_of_synthetic_run(config), world,
                        /*more_boxes_per_image=*/0, device);
  training.keep_batch();
  // As in a run: a state that its peers hold as well needs no copies.
  std::unique_ptr<checkpoint::PeerReplicas> buddies;
  if (config.zero_stage > 0) {
    buddies = std::make_unique<checkpoint::PeerReplicas>(world, /*shift=*/1);
  }
  std::vector<double> all, copies;
  for (int step = -kWarmUp; step < steps; ++step) {
    world.barrier();
    const Clock::time_point begin = Clock::now();
    training.step();
    const Clock::time_point committed = Clock::now();
    if (buddies) {
      buddies->after_commit(training.state(), "{}");
      // A run waits for the rest before its next step.
      buddies->settle();
    }
    if (step < 0) continue;
    copies.push_back(milliseconds_since(committed));
    all.push_back(milliseconds_since(begin));
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
  config.cfg = "yolov5s";
  config.synthetic_input = true;
  config.global_batch_size = 16;
  config.activations = "keep";
  config.layout = plan::parse_layout("data=" + std::to_string(kRanks));
  CLI::App app("milliseconds and bytes of a state's copies");
  app.add_option("--device", request.devices)->delimiter(',')->expected(kRanks);
  app.add_option("--cfg", config.cfg);
  app.add_option("--img", config.image_height);
  app.add_option("--batch", config.global_batch_size);
  app.add_option("--precision", request.precision);
  app.add_option("--zero", request.stages)->delimiter(',');
  app.add_option("--steps", request.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  config.image_width = config.image_height;
  config.batch_norm_group_size = config.global_batch_size / kRanks;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("headroom-state-copies-" + std::to_string(getpid()));
  try {
    configs::set_from_text(config, *configs::find_key("precision"),
                           request.precision);
    return run_forked_ranks(
        kRanks, folder,
        [&](collectives::Communicator& world) { return run(request, world); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::benchmark(argc, argv); }
