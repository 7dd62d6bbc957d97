// Measures the cost of the copies that ranks make of state for each other after
// each commit: the milliseconds of a step with its copies, those for which the
// copies make the host wait, and the bytes that a rank sends. ZeRO and
// pipelines need copies, ZeRO 0 does not.
//
//   benchmark_state_copies [--device 0,0] [--cfg yolov5s] [--img 640]
//                          [--batch 16] [--precision bf16] [--steps 10]
//                          [--zero 0,1]
//
// The two ranks are processes, each on its own device of the list, or both on
// the CPU (--device cpu,cpu). They use NCCL for the devices and sockets or
// shared memory for the host. Two ranks may share a device. The stages of ZeRO
// take turns of a few steps. Prints a line of JSON for each.
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
constexpr int kWarmUp = 2;  // steps of a turn that are not counted
constexpr int kTurn = 5;

struct Request {
  configs::RunConfig config;
  std::vector<std::string> devices = {"0", "0"};
  std::vector<int> stages = {0, 1};
  int steps = 10;
};

// A training with one stage of ZeRO, and its copies.
class Stage {
 public:
  Stage(const configs::RunConfig& config, const devices::ComputeDevice& device,
        collectives::Communicator& world)
      : config_(config),
        training_(config, plan_of_synthetic_run(config), world,
                  /*more_boxes_per_image=*/0, device) {
    training_.keep_batch();
    // As in a run, no copies are made if the peers hold the same state.
    if (config.zero_stage == 0) return;
    buddies_ = std::make_unique<checkpoint::PeerReplicas>(world, /*shift=*/1,
                                                          training_.state());
    training_.before_vote(
        [this] { waited_ += seconds_of([&] { buddies_->settle(); }); });
  }

  void step(bool counts) {
    waited_ = 0;
    const int64_t sent = sent_bytes();
    const double seconds = seconds_of([&] {
      training_.step();
      if (!buddies_) return;
      waited_ += seconds_of([&] { buddies_->after_commit(); });
    });
    if (!counts) return;
    bytes_.push_back(static_cast<double>(sent_bytes() - sent));
    copies_.push_back(1e3 * waited_);
    all_.push_back(1e3 * seconds);
  }
  void settle() {
    if (buddies_) buddies_->settle();
  }

  nlohmann::ordered_json line() const {
    return {
        {"zero", config_.zero_stage},         {"cfg", config_.cfg},
        {"batch", config_.global_batch_size}, {"step_ms", median(all_)},
        {"after_commit_ms", median(copies_)}, {"sent_bytes", median(bytes_)}};
  }

 private:
  int64_t sent_bytes() const { return buddies_ ? buddies_->sent_bytes() : 0; }

  const configs::RunConfig config_;
  RankTraining training_;
  std::unique_ptr<checkpoint::PeerReplicas> buddies_;
  double waited_ = 0;  // in the running step, for copies
  std::vector<double> all_, copies_, bytes_;
};

std::unique_ptr<collectives::Communicator> over_devices(
    const devices::ComputeDevice& device, collectives::Communicator& hosts) {
  devices::DeviceCommunicatorOptions options;
  options.device = device.device().index();
  options.may_share_devices = true;
  options.timeout = std::chrono::seconds(60);
  return collectives::make_device_host_communicator(
      hosts.split(0, hosts.rank()),
      device.api()->connect_ranks(hosts, options));
}

int run(const Request& request, collectives::Communicator& hosts) {
  const int rank = hosts.rank();
  // NCCL refuses two ranks on one device of one host.
  setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 1);
  configs::RunConfig config = request.config;
  config.device = request.devices.at(static_cast<size_t>(rank));
  const run::ChosenDevice chosen = run::choose_device(config, 0, 1);
  const auto world = chosen.device.is_cpu()
                         ? hosts.split(0, rank)
                         : over_devices(chosen.device, hosts);
  std::vector<std::unique_ptr<Stage>> stages;
  for (const int stage : request.stages) {
    config.zero_stage = stage;
    stages.push_back(std::make_unique<Stage>(config, chosen.device, *world));
  }
  for (int done = 0; done < request.steps; done += kTurn) {
    for (const auto& stage : stages) {
      world->barrier();
      for (int step = -kWarmUp; step < kTurn; ++step) stage->step(step >= 0);
      // A transfer overlaps the next step of its own stage only.
      stage->settle();
    }
  }
  for (const auto& stage : stages) {
    if (rank == 0) std::cout << stage->line().dump() << std::endl;
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
