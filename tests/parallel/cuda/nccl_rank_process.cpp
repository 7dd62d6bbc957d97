// Runs one rank over NCCL as a process:
//
//   nccl_rank_process PLUGIN RANK SIZE FOLDER MODE
//
// All ranks use device 0. MODE check runs the checks; in die and hang, the last
// rank misbehaves in the middle. Exits with 0; on an error, prints one line and
// exits with 7 for CommunicationError and with 1 for anything else.
#include <ATen/ops/ones.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "parallel/devices/compute_device.h"
#include "tests/parallel/cuda/nccl_checks.h"
#include "tests/support/folder_store.h"

namespace headroom::cuda {
namespace {

void run(devices::DeviceApi& api, const std::vector<std::string>& words) {
  const int rank = std::stoi(words.at(1));
  const int size = std::stoi(words.at(2));
  const std::string mode = words.at(4);
  collectives::NetworkOptions network;
  network.timeout = std::chrono::seconds(60);
  const auto host = collectives::make_network_communicator(
      std::make_shared<FolderStore>(words.at(3)), "host", rank, size, network);
  devices::DeviceCommunicatorOptions options;
  options.may_share_devices = true;
  options.timeout = std::chrono::seconds(mode == "hang" ? 5 : 60);
  const auto ranks = api.connect_ranks(*host, options)->over(*host);
  if (mode == "check") {
    check_nccl(*ranks);
    return;
  }
  const at::Tensor tensor = at::ones({1000000}, at::Device(at::kCUDA, 0));
  ranks->all_reduce(tensor);
  ranks->barrier();
  if (rank == size - 1) {
    if (mode == "die") raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::minutes(1));
  }
  for (int i = 0; i < 100; ++i) {
    ranks->all_reduce(tensor);
    ranks->barrier();
  }
}

}  // namespace
}  // namespace headroom::cuda

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const headroom::devices::DevicePlugin plugin =
      headroom::devices::load_device_plugin(words.at(0));
  try {
    if (plugin.api == nullptr) throw std::runtime_error(plugin.reason);
    headroom::cuda::run(*plugin.api, words);
    return 0;
  } catch (const headroom::CommunicationError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 7;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
