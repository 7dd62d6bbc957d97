// Measures the memory of a run's communicators on a device, to compare it with
// the bytes that plans reserve, and the time that the first one needs to
// connect. There are two ranks on one device.
//
//   communicator_costs FOLDER [--variant NAME]...
//
// The two processes share device 0 and find each other through FOLDER, which
// must be empty. Rank 0 prints a line of JSON for each variant, with the bytes
// of one rank: those of the world's communicator, and those of one more group.
// The ranks of this group are in another order, because groups with the same
// order share a communicator.
//
//   as it is    the settings of a run
//   8 blocks    an operation uses at most 8 blocks (NCCL_MAX_CTAS)
//   NVLS        NVSwitch adds the values, if the machine has one
//
// The replacement for NCCL on the tests' device ignores these variables.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "parallel/devices/compute_device.h"
#include "parallel/predict/nccl_memory.h"
#include "tests/support/folder_store.h"

namespace headroom {
namespace {

constexpr int kRanks = 2;
constexpr auto kTimeout = std::chrono::seconds(60);

const std::map<std::string, std::map<std::string, std::string>> kVariants = {
    {"as it is", {}},
    {"8 blocks", {{"NCCL_MAX_CTAS", "8"}}},
    {"NVLS", {{"NCCL_NVLS_ENABLE", "1"}}}};

class Rank {
 public:
  Rank(devices::DeviceApi& api, const std::string& folder, int rank)
      : api_(api), rank_(rank) {
    collectives::NetworkOptions network;
    network.timeout = kTimeout;
    host_ = collectives::make_network_communicator(
        std::make_shared<FolderStore>(folder), "host", rank, kRanks, network);
  }

  void run(const std::string& variant) {
    api_.free_bytes(0);  // creates the context
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    int64_t before = taken();
    const auto added = [&] {
      const int64_t now = taken();
      return now - std::exchange(before, now);
    };
    devices::DeviceCommunicatorOptions options;
    options.may_share_devices = true;
    options.timeout = kTimeout;
    const auto world = collectives::make_device_host_communicator(
        host_->split(0, rank_), api_.connect_ranks(*host_, options));
    world->connect();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    nlohmann::ordered_json line = {{"variant", variant},
                                   {"world_bytes", added()}};
    const auto same = world->split(0, rank_);
    same->connect();
    line["same_ranks_bytes"] = added();
    const auto other = world->split(0, -rank_);
    other->connect();
    line["other_order_bytes"] = added();
    line["all_bytes"] = line["world_bytes"].get<int64_t>() +
                        line["same_ranks_bytes"].get<int64_t>();
    plan::ParallelLayout layout;
    layout.data_parallel_size = kRanks;
    line["plans_reserve"] =
        predict::nccl_bytes(layout, /*zero_stage=*/0, predict::CardLinks());
    line["own_bytes_known"] = api_.use_of(0)->own_bytes.has_value();
    line["world_seconds"] = seconds.count();
    if (rank_ == 0) std::cout << line.dump() << std::endl;
    host_->barrier();  // ends both ranks together, so that no rank fails
  }

 private:
  // The bytes of this rank in addition to LibTorch's segments. If the driver
  // does not report bytes by process, this is half of the total. Both ranks
  // measure at the same point.
  int64_t taken() {
    host_->barrier();
    const std::optional<devices::DeviceUse> use = api_.use_of(0);
    if (!use) throw std::runtime_error("the driver tells no bytes");
    const int64_t own =
        use->own_bytes ? *use->own_bytes : use->used_bytes / kRanks;
    host_->barrier();
    return own - api_.memory(0).reserved_bytes();
  }

  devices::DeviceApi& api_;
  const int rank_;
  std::unique_ptr<collectives::Communicator> host_;
};

int run_rank(const std::vector<std::string>& words) {
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  if (plugin.api == nullptr) throw std::runtime_error(plugin.reason);
  Rank(*plugin.api, words.at(1), std::stoi(words.at(2))).run(words.at(3));
  return 0;
}

// Runs both ranks as processes of this program; returns the worse exit code.
int run_variant(const std::string& program, const std::string& folder,
                const std::string& variant) {
  std::filesystem::create_directories(folder);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      // NCCL refuses two ranks on one device of one host.
      setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 1);
      for (const auto& [name, value] : kVariants.at(variant)) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      execl(program.c_str(), program.c_str(), "rank", folder.c_str(),
            std::to_string(rank).c_str(), variant.c_str(), nullptr);
      _exit(127);
    }
    ranks.push_back(child);
  }
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

int run_all(const std::vector<std::string>& words) {
  std::vector<std::string> variants;
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    if (words[i] == "--variant") variants.push_back(words[i + 1]);
  }
  if (variants.empty()) {
    for (const auto& [name, variables] : kVariants) variants.push_back(name);
  }
  int worst = 0;
  for (const std::string& variant : variants) {
    worst = std::max(worst, run_variant("/proc/self/exe",
                                        words.at(0) + "/" + variant, variant));
  }
  return worst;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    return words.at(0) == "rank" ? headroom::run_rank(words)
                                 : headroom::run_all(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "communicator_costs: %s\n", error.what());
    return 1;
  }
}
