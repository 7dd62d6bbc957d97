#include "deploy/cli/process/core_binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

// The numbers of the hyper-threads of one core are far apart.
const std::vector<Cores> kTwoNodes = {{0, 1, 4, 5}, {2, 3, 6, 7}};
const Cores kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(CoreBinding, ReadsTheKernelsLists) {
  EXPECT_EQ(parse_cores("0-3,8"), (Cores{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cores("5"), (Cores{5}));
  for (const char* bad : {"", "x", "3-1", "-2", "0-99999999"}) {
    EXPECT_TRUE(parse_cores(bad).empty()) << bad;
  }
}

TEST(CoreBinding, ReadsTheMachinesNodes) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& file, const std::string& text) {
    const auto path = folder.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  write("online", "0,2-3");
  write("node0/cpulist", "0-1,4-5");
  write("node2/cpulist", "2-3,6-7");
  write("node3/cpulist", "");  // a node with memory but without cores
  EXPECT_EQ(numa_nodes(folder.path()), kTwoNodes);
  EXPECT_TRUE(numa_nodes(folder.path() / "none").empty());
}

TEST(CoreBinding, EachWorkerHasTheNodeOfItsShare) {
  EXPECT_EQ(cores_of_worker(kTwoNodes, kAll, 0, 2, 4), kTwoNodes[0]);
  EXPECT_EQ(cores_of_worker(kTwoNodes, kAll, 1, 2, 4), kTwoNodes[1]);
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(cores_of_worker(kTwoNodes, kAll, k, 4, 2), kTwoNodes[k / 2]) << k;
  }
  // There are more workers than cores.
  EXPECT_EQ(cores_of_worker(kTwoNodes, kAll, 15, 16, 1), kTwoNodes[1]);
  // The share of this worker is in two nodes, so it is not bound. The same
  // holds for a single worker.
  EXPECT_TRUE(cores_of_worker(kTwoNodes, kAll, 1, 3, 2).empty());
  EXPECT_TRUE(cores_of_worker(kTwoNodes, kAll, 0, 1, 8).empty());
}

TEST(CoreBinding, OnlyAllowedCoresCount) {
  EXPECT_EQ(cores_of_worker(kTwoNodes, {1, 2, 3, 5}, 0, 2, 1), (Cores{1, 5}));
  EXPECT_TRUE(cores_of_worker(kTwoNodes, {0, 1}, 1, 2, 1).empty())
      << "one node: nothing to choose";
  EXPECT_TRUE(cores_of_worker(kTwoNodes, {}, 0, 2, 1).empty());
}

TEST(CoreBinding, NoProcessIsBoundToFewerCoresThanItHasThreads) {
  EXPECT_TRUE(cores_of_worker(kTwoNodes, kAll, 0, 2, 5).empty());
  EXPECT_TRUE(cores_of_worker({{0, 1}}, {0, 1}, 0, 2, 1).empty());
  EXPECT_TRUE(cores_of_worker({}, {0, 1}, 0, 2, 1).empty());
}

// A replacement for /sys/bus/pci/devices: a DGX A100 with four NUMA nodes per
// socket (NPS4), where only every second node has cards.
class DevicesOfNps4 {
 public:
  DevicesOfNps4() {
    const std::vector<std::pair<std::string, std::string>> devices = {
        {"0000:07:00.0", "48-63,176-191"},  // cards 0 and 1
        {"0000:0f:00.0", "48-63,176-191"},
        {"0000:47:00.0", "16-31,144-159"},  // cards 2 and 3
        {"0000:4e:00.0", "16-31,144-159"},
        {"0000:87:00.0", "112-127,240-255"},  // cards 4 and 5
        {"0000:90:00.0", "112-127,240-255"},
        {"0000:b7:00.0", "80-95,208-223"},  // cards 6 and 7
        {"0000:bd:00.0", "80-95,208-223"}};
    for (const auto& [address, cores] : devices) {
      std::filesystem::create_directories(folder_.path() / address);
      std::ofstream(folder_.path() / address / "local_cpulist")
          << cores << '\n';
      addresses.push_back(address);
    }
    for (int core = 0; core < 256; ++core) all.push_back(core);
  }

  std::optional<Cores> of_card(size_t card, int threads = 16) const {
    return cores_of_card_worker(
        cores_near_device(addresses[card], folder_.path()), all, threads);
  }
  Cores near(const std::string& address) const {
    return cores_near_device(address, folder_.path());
  }

  std::vector<std::string> addresses;
  Cores all;

 private:
  testing::TemporaryFolder folder_;
};

TEST(CoreBinding, AWorkerIsBoundNearItsCard) {
  const DevicesOfNps4 machine;
  // With --device 4,5 ranks 0 and 1 are not bound to the first node.
  for (const size_t card : {size_t{4}, size_t{5}}) {
    EXPECT_EQ(machine.of_card(card), parse_cores("112-127,240-255")) << card;
  }
  EXPECT_EQ(machine.of_card(0), parse_cores("48-63,176-191"));
  // Without its card, the worker would get a quarter of the second socket.
  EXPECT_NE(machine.of_card(2), machine.of_card(6));
}

TEST(CoreBinding, APartOfACardHasTheWholeCardsPlace) {
  // parallel/nvml reports the bus address of the whole card for a part of it
  // (MIG).
  const DevicesOfNps4 machine;
  EXPECT_EQ(machine.near("0000:47:00.0"), parse_cores("16-31,144-159"));
}

TEST(CoreBinding, WithoutTheSystemsTopologyItIsAsOnTheCpu) {
  const DevicesOfNps4 machine;
  for (const char* address : {"", "0000:ff:00.0", "../0000:07:00.0"}) {
    EXPECT_TRUE(machine.near(address).empty()) << address;
  }
  EXPECT_EQ(cores_of_card_worker({}, machine.all, 1), std::nullopt);
  // This job may use only the cores of the other socket.
  EXPECT_EQ(cores_of_card_worker({0, 1}, {2, 3}, 1), std::nullopt);
}

TEST(CoreBinding, AllCoresOrTooFewAreNoBinding) {
  const DevicesOfNps4 machine;
  EXPECT_EQ(machine.of_card(4, /*threads=*/33), Cores());
  EXPECT_EQ(cores_of_card_worker(machine.all, machine.all, 1), Cores());
  // The job has only a share of the node's cores.
  EXPECT_EQ(cores_of_card_worker({0, 1, 4, 5}, {1, 2, 3, 5}, 2), (Cores{1, 5}));
}

TEST(CoreBinding, OnlyABindingThatWasNotRequestedIsTheLaunchersDefault) {
  Environment job = {{"OMPI_COMM_WORLD_RANK", "0"}};
  EXPECT_TRUE(is_bound_by_default(job));
  EXPECT_FALSE(is_bound_by_default({{"SLURM_PROCID", "0"}}));
  for (const char* asked :
       {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_set",
        "OMPI_MCA_hwloc_base_cpu_list"}) {
    Environment bound = job;
    bound[asked] = "core";
    EXPECT_FALSE(is_bound_by_default(bound)) << asked;
  }
}

TEST(CoreBinding, ABindingCanBeUndone) {
  const Cores before = allowed_cores();
  ASSERT_FALSE(before.empty());
  std::thread([&] {  // a binding applies to one thread
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(before[0], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_cores(), (Cores{before[0]}));
    EXPECT_GE(use_all_cores(), static_cast<int>(before.size()));
  })
      .join();
  EXPECT_EQ(allowed_cores(), before);
}

}  // namespace
}  // namespace headroom::cli
