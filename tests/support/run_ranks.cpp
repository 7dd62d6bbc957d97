#include "tests/support/run_ranks.h"

#include <ATen/Parallel.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "tests/support/in_memory_store.h"

namespace headroom {
namespace {

using Factory =
    std::function<std::unique_ptr<collectives::Communicator>(int rank)>;

Factory make_factory(int size, const RankOptions& options) {
  if (options.backend == RankBackend::kLocal) {
    using Communicators =
        std::vector<std::unique_ptr<collectives::Communicator>>;
    const auto all = std::make_shared<Communicators>(
        collectives::make_local_communicators(size, options.operation_timeout));
    return [all](int rank) { return std::move(all->at(rank)); };
  }
  const auto store = std::make_shared<InMemoryStore>();
  collectives::NetworkOptions network;
  network.timeout = options.operation_timeout;
  if (options.backend == RankBackend::kLazyNetwork) network.full_mesh_up_to = 1;
  const bool shares = options.backend == RankBackend::kSharedMemory;
  const bool has_machines = options.backend == RankBackend::kMachines;
  std::vector<int> machines = options.machine_of_rank;
  for (int rank = static_cast<int>(machines.size()); rank < size; ++rank) {
    machines.push_back(rank % 2);
  }
  return [=](int rank) {
    auto ranks = collectives::make_network_communicator(store, "run_ranks",
                                                        rank, size, network);
    if (!shares && !has_machines) return ranks;
    return collectives::share_memory(
        std::move(ranks), network.timeout,
        has_machines ? std::optional<int64_t>(machines[rank]) : std::nullopt);
  };
}

// Returns the first error that names a cause, or else the first error.
std::exception_ptr choose(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError&) {
      continue;
    } catch (...) {
      return error;
    }
  }
  return first;
}

}  // namespace

std::string to_string(RankBackend backend) {
  switch (backend) {
    case RankBackend::kLocal:
      return "local";
    case RankBackend::kNetwork:
      return "network";
    case RankBackend::kLazyNetwork:
      return "lazy_network";
    case RankBackend::kSharedMemory:
      return "shared_memory";
    case RankBackend::kMachines:
      return "machines";
  }
  return "";
}

struct RankGenerations::State {
  int size = 0;
  RankOptions options;
  std::mutex mutex;
  std::condition_variable met;
  int num_here = 0;  // guarded by mutex, as are the next two
  int64_t num_meetings = 0;
  Factory factory;  // makes communicators of the newest generation
};

RankGenerations::RankGenerations(int size, const RankOptions& options)
    : state_(std::make_unique<State>()) {
  state_->size = size;
  state_->options = options;
}

RankGenerations::~RankGenerations() = default;

std::unique_ptr<collectives::Communicator> RankGenerations::next(int rank) {
  Factory factory;
  {
    std::unique_lock lock(state_->mutex);
    const int64_t meeting = state_->num_meetings;
    if (++state_->num_here == state_->size) {
      state_->factory = make_factory(state_->size, state_->options);
      state_->num_here = 0;
      ++state_->num_meetings;
      state_->met.notify_all();
    }
    state_->met.wait(lock, [&] { return state_->num_meetings > meeting; });
    factory = state_->factory;
  }
  return factory(rank);
}

void run_ranks(
    int size,
    const std::function<void(int rank, collectives::Communicator&)>& body,
    const RankOptions& options) {
  const Factory factory = make_factory(size, options);
  std::vector<std::exception_ptr> errors(size);
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<bool> has_ended(size);  // guarded by mutex

  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      activations::CountingAllocator::count_separately();
      try {
        const std::unique_ptr<collectives::Communicator> communicator =
            factory(rank);
        body(rank, *communicator);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(mutex);
      has_ended[rank] = true;
      ended.notify_all();
    });
  }

  {
    std::unique_lock<std::mutex> lock(mutex);
    const bool all_ended =
        ended.wait_for(lock, options.time_limit, [&has_ended, size] {
          for (int rank = 0; rank < size; ++rank) {
            if (!has_ended[rank]) return false;
          }
          return true;
        });
    if (!all_ended) {
      for (int rank = 0; rank < size; ++rank) {
        if (!has_ended[rank]) {
          std::fprintf(stderr, "run_ranks: rank %d has not ended\n", rank);
        }
      }
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr error = choose(errors)) {
    std::rethrow_exception(error);
  }
}

}  // namespace headroom
