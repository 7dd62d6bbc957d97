// Counts the lookups in the run's key-value store that a rank makes until all
// ranks are connected: their number does not depend on the number of ranks.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/collectives/backend.h"
#include "tests/support/in_memory_store.h"

namespace headroom::collectives {
namespace {

using std::chrono::milliseconds;

// A store for one rank that counts the rank's calls.
class CountedStore final : public KeyValueStore {
 public:
  explicit CountedStore(KeyValueStore& all) : all_(all) {}
  int calls() const { return calls_; }

  void set(const std::string& key, const std::string& value) override {
    ++calls_;
    all_.set(key, value);
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    ++calls_;
    return all_.get(key, timeout);
  }
  // One call is enough, as with a coordinator.
  std::vector<std::string> get_all(const std::string& prefix, int count,
                                   milliseconds timeout) override {
    ++calls_;
    return all_.get_all(prefix, count, timeout);
  }

 private:
  KeyValueStore& all_;
  std::atomic<int> calls_ = 0;
};

// For each rank, the number of calls of the store while `ranks` ranks form a
// group and then split it `parts` times.
std::vector<int> calls_of(int ranks, int parts, int full_mesh_up_to) {
  InMemoryStore store;
  std::vector<int> calls(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto counted = std::make_shared<CountedStore>(store);
      NetworkOptions options;
      options.full_mesh_up_to = full_mesh_up_to;
      const auto group =
          make_network_communicator(counted, "ranks", rank, ranks, options);
      std::vector<std::unique_ptr<Communicator>> axes;
      for (int i = 0; i < parts; ++i) axes.push_back(group->split(0, rank));
      const at::Tensor sum = at::ones({1});
      if (!axes.empty()) {
        axes.back()->all_reduce(sum);
        EXPECT_EQ(sum.item<float>(), ranks);
      }
      group->barrier();
      calls[static_cast<size_t>(rank)] = counted->calls();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return calls;
}

TEST(Formation, AGroupCallsTheStoreThreeTimesAndItsPartsNever) {
  for (const int full_mesh_up_to : {1, 64}) {
    for (const int ranks : {3, 12}) {
      const std::vector<int> calls = calls_of(ranks, 3, full_mesh_up_to);
      EXPECT_EQ(calls[0], 6) << "rank 0 gives the secret and all ports";
      for (size_t rank = 1; rank < calls.size(); ++rank) {
        EXPECT_EQ(calls[rank], 3);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::collectives
