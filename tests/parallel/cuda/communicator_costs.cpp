// What NCCL's communicators take of a device, beside what plans reserve for
// them, and how long they take to connect: the world of two ranks, and each
// part that is split off it.
//
//   communicator_costs FOLDER [--splits 5] [--variant NAME]...
//
// Two processes share device 0; FOLDER, which must be empty, is where they
// meet. A line of JSON for each variant, from rank 0, bytes of one rank:
//
//   as it is    parts share the world's buffers and threads
//   own         they do not (splitShare off)
//   8 blocks    at most 8 of the device for an operation (maxCTAs)
//   no NVLS     without NVSwitch's sums
//
// NCCL reads the last three from its own variables, which win over what the
// program asks for. Its stand-in for the tests' device knows none of them.
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
#include "parallel/predict/time_model.h"
#include "tests/support/folder_store.h"

namespace headroom {
namespace {

constexpr int kRanks = 2;
constexpr auto kTimeout = std::chrono::seconds(60);

const std::map<std::string, std::map<std::string, std::string>> kVariants = {
    {"as it is", {}},
    {"own", {{"NCCL_COMM_SPLIT_SHARE_RESOURCES", "0"}}},
    {"8 blocks", {{"NCCL_MAX_CTAS", "8"}}},
    {"no NVLS", {{"NCCL_NVLS_ENABLE", "0"}}}};

class Rank {
 public:
  Rank(devices::DeviceApi& api, const std::string& folder, int rank)
      : api_(api),
        store_(std::make_shared<FolderStore>(folder)),
        rank_(rank) {}

  void run(const std::string& variant, int splits) {
    api_.free_bytes(0);  // makes the context
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    int64_t before = taken();
    devices::DeviceCommunicatorOptions options;
    options.may_share_devices = true;
    options.timeout = kTimeout;
    collectives::GlooOptions gloo;
    gloo.timeout = kTimeout;
    auto host = collectives::make_gloo_communicator(store_, "hosts", rank_,
                                                    kRanks, gloo);
    auto devices = api_.connect_ranks(*host, options);
    const auto world = collectives::make_device_host_communicator(
        std::move(host), std::move(devices));
    world->connect();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    const auto added = [&] {
      const int64_t now = taken();
      return now - std::exchange(before, now);
    };
    nlohmann::ordered_json line = {{"variant", variant},
                                   {"world_bytes", added()}};
    std::vector<std::unique_ptr<collectives::Communicator>> parts;
    int64_t of_parts = 0;
    for (int part = 0; part < splits; ++part) {
      // A part of the same ranks uses the connection that is there.
      parts.push_back(world->split(0, rank_));
      parts.back()->connect();
      const int64_t bytes = added();
      of_parts += bytes;
      line["split_" + std::to_string(part + 1) + "_bytes"] = bytes;
    }
    line["all_bytes"] = line["world_bytes"].get<int64_t>() + of_parts;
    line["plans_reserve"] = predict::kGpuCommunicationBytes;
    line["own_bytes_known"] = api_.use_of(0)->own_bytes.has_value();
    line["world_seconds"] = seconds.count();
    if (rank_ == 0) std::cout << line.dump() << std::endl;
    taken();  // together: an end is not a failure
  }

 private:
  // Bytes of this rank beside LibTorch's segments: where the driver does not
  // tell a process's own, half of what all have. Both ranks at the same point.
  int64_t taken() {
    meet();
    const std::optional<devices::DeviceUse> use = api_.use_of(0);
    if (!use) throw std::runtime_error("the driver tells no bytes");
    const int64_t own =
        use->own_bytes ? *use->own_bytes : use->used_bytes / kRanks;
    meet();
    return own - api_.memory(0).reserved_bytes();
  }

  void meet() {
    const std::string here = "meeting-" + std::to_string(meetings_++) + "-";
    store_->set(here + std::to_string(rank_), "here");
    store_->get(here + std::to_string(1 - rank_), kTimeout);
  }

  devices::DeviceApi& api_;
  const std::shared_ptr<FolderStore> store_;
  const int rank_;
  int meetings_ = 0;
};

int run_rank(const std::vector<std::string>& words) {
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  if (plugin.api == nullptr) throw std::runtime_error(plugin.reason);
  Rank(*plugin.api, words.at(1), std::stoi(words.at(2)))
      .run(words.at(3), std::stoi(words.at(4)));
  return 0;
}

// Both ranks, as processes of this program; the worse exit code.
int run_variant(const std::string& program, const std::string& folder,
                const std::string& variant, int splits) {
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
            std::to_string(rank).c_str(), variant.c_str(),
            std::to_string(splits).c_str(), nullptr);
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
  int splits = 5;
  std::vector<std::string> variants;
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    if (words[i] == "--splits") splits = std::stoi(words[i + 1]);
    if (words[i] == "--variant") variants.push_back(words[i + 1]);
  }
  if (variants.empty()) {
    for (const auto& [name, variables] : kVariants) variants.push_back(name);
  }
  int worst = 0;
  for (const std::string& variant : variants) {
    worst = std::max(worst,
                     run_variant("/proc/self/exe", words.at(0) + "/" + variant,
                                 variant, splits));
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
