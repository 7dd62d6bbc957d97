// Tests the errors that the surviving ranks report when a rank dies, hangs, or
// makes a mistake.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/collectives/backend.h"
#include "tests/parallel/collectives/collective_checks.h"
#include "tests/support/in_memory_store.h"
#include "tests/support/run_ranks.h"

namespace headroom::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;
using Clock = std::chrono::steady_clock;

// Holds a rank back without using a communicator, until the other ranks are
// done.
class Gate {
 public:
  explicit Gate(int count) : count_(count) {}
  void pass_one() {
    std::lock_guard<std::mutex> lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_;
};

class FailureTest : public testing::TestWithParam<RankBackend> {
 protected:
  RankOptions options(milliseconds timeout) const {
    RankOptions options;
    options.backend = GetParam();
    options.operation_timeout = timeout;
    return options;
  }
};

template <typename Call>
std::pair<std::string, Clock::duration> communication_error_of(
    const Call& call) {
  const Clock::time_point start = Clock::now();
  try {
    call();
  } catch (const CommunicationError& error) {
    return {error.what(), Clock::now() - start};
  }
  return {"no CommunicationError", Clock::now() - start};
}

// Announces after a short time that a peer is lost, as the heartbeat thread of
// a worker does.
void learn_of_a_loss() {
  std::this_thread::sleep_for(milliseconds(300));
  AbortableWait::abort_all();
}

TEST_P(FailureTest, ADeadRankIsNoticedByAllAtOnce) {
  for (const int size : {2, 3, 4}) {
    EXPECT_THROW(run_ranks(
                     size,
                     [&](int rank, Communicator& ranks) {
                       const at::Tensor tensor = at::ones({100000});
                       ranks.all_reduce(tensor);
                       if (rank == 1) throw std::runtime_error("rank 1 dies");
                       const auto [what, taken] = communication_error_of([&] {
                         for (int i = 0; i < 3; ++i) ranks.all_reduce(tensor);
                       });
                       EXPECT_THAT(
                           what, AllOf(HasSubstr("rank " +
                                                 std::to_string(rank) + " of "),
                                       HasSubstr("all_reduce")));
                       EXPECT_LT(taken, seconds(5)) << size << " ranks";
                     },
                     options(seconds(20))),
                 std::runtime_error);
  }
}

// Sums while another rank hangs, with a time limit of 1.5 s, and passes
// `others`. Returns the error.
std::string error_of_late_sum(Communicator& ranks, Gate& others) {
  const at::Tensor sum = at::ones({1000});
  const auto [what, taken] =
      communication_error_of([&] { ranks.all_reduce(sum); });
  others.pass_one();
  EXPECT_THAT(taken, AllOf(Ge(milliseconds(1400)), Lt(seconds(8))));
  return what;
}

TEST_P(FailureTest, ARankThatDiesWithOperationsUnderWayFreesItsPeers) {
  const auto work = [&](int rank, Communicator& ranks) {
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(at::ones({50000}));
      works.push_back(ranks.all_reduce_async(tensors.back(), ReduceOp::kSum));
      if (rank == 2 && i == 1) throw std::runtime_error("rank 2 dies");
    }
    const auto [what, taken] = communication_error_of([&works] {
      for (const auto& one : works) one->wait();
    });
    EXPECT_THAT(what, HasSubstr("all_reduce"));
    EXPECT_LT(taken, seconds(5));
  };
  const Clock::time_point start = Clock::now();
  EXPECT_THROW(run_ranks(3, work, options(seconds(20))), std::runtime_error);
  // Destroying the failed group does not wait for the time limit either.
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST_P(FailureTest, AHangingRankIsGivenUpAfterTheTimeLimit) {
  Gate others(2);
  run_ranks(
      3,
      [&](int rank, Communicator& ranks) {
        ranks.barrier();
        if (rank == 0) {
          others.wait_for_all();
          return;
        }
        const std::string what = error_of_late_sum(ranks, others);
        EXPECT_THAT(what, HasSubstr("all_reduce"));
      },
      options(milliseconds(1500)));
}

TEST_P(FailureTest, EachOperationHasTheWholeTimeLimit) {
  run_ranks(
      2,
      [&](int rank, Communicator& ranks) {
        const at::Tensor tensor = at::ones({1});
        for (int i = 0; i < 3; ++i) {
          if (rank == 1) std::this_thread::sleep_for(milliseconds(700));
          ranks.all_reduce(tensor);
        }
      },
      options(milliseconds(1500)));
}

TEST_P(FailureTest, AReceiverIsFreedWhenTheSenderDies) {
  EXPECT_THROW(run_ranks(
                   2,
                   [&](int rank, Communicator& ranks) {
                     ranks.barrier();
                     if (rank == 0) throw std::runtime_error("rank 0 dies");
                     const auto [what, taken] = communication_error_of(
                         [&] { ranks.recv(at::ones({10}), 0); });
                     EXPECT_THAT(what, HasSubstr("rank 1 of 2"));
                     EXPECT_LT(taken, seconds(5));
                   },
                   options(seconds(20))),
               std::runtime_error);
}

TEST_P(FailureTest, AFailedCommunicatorStaysFailed) {
  EXPECT_THROW(run_ranks(
                   2,
                   [&](int rank, Communicator& ranks) {
                     ranks.barrier();
                     if (rank == 0) throw std::runtime_error("rank 0 dies");
                     const at::Tensor tensor = at::ones({10});
                     EXPECT_THROW(ranks.all_reduce(tensor), CommunicationError);
                     const auto [what, taken] = communication_error_of(
                         [&] { ranks.broadcast(tensor, 1); });
                     EXPECT_THAT(what, HasSubstr("broadcast"));
                     EXPECT_LT(taken, seconds(1));
                   },
                   options(seconds(20))),
               std::runtime_error);
}

TEST_P(FailureTest, ForeignTensorsAreRefusedBeforeAnythingIsSent) {
  run_ranks(
      2,
      [&](int, Communicator& ranks) {
        EXPECT_THROW(ranks.all_reduce(at::ones({4}, at::kHalf)), CheckFailure);
        EXPECT_THROW(ranks.all_reduce(at::ones({4, 4}).narrow(1, 0, 2)),
                     CheckFailure);
        EXPECT_THROW(ranks.all_gather(at::ones({5}), at::ones({3})),
                     CheckFailure);
        EXPECT_THROW(ranks.send(at::ones({1}), 2), CheckFailure);
        ranks.barrier();
      },
      options(seconds(20)));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, FailureTest,
    testing::Values(RankBackend::kLocal, RankBackend::kNetwork,
                    RankBackend::kLazyNetwork, RankBackend::kSharedMemory,
                    RankBackend::kMachines),
    [](const auto& info) { return to_string(info.param); });

TEST(SharedMemoryCommunicatorTest, DifferentCallsAreAnErrorNotAHang) {
  RankOptions options;
  options.backend = RankBackend::kSharedMemory;
  EXPECT_THROW(run_ranks(
                   2,
                   [](int rank, Communicator& ranks) {
                     if (rank == 0) {
                       ranks.barrier();
                     } else {
                       ranks.all_reduce(at::ones({3}));
                     }
                   },
                   options),
               CheckFailure);
  EXPECT_THROW(run_ranks(
                   3,
                   [](int rank, Communicator& ranks) {
                     ranks.all_reduce(at::ones({rank == 2 ? 4 : 3}));
                   },
                   options),
               CheckFailure);
}

TEST(SharedMemoryCommunicatorTest, SumsInPlaceAreOfTheSamePlace) {
  RankOptions options;
  options.backend = RankBackend::kSharedMemory;
  EXPECT_THROW(run_ranks(
                   2,
                   [](int rank, Communicator& ranks) {
                     const at::Tensor tensor = ranks.zeros(20000, at::kFloat);
                     ranks.all_reduce(tensor.narrow(0, 16L * rank, 10000));
                   },
                   options),
               CheckFailure);
}

TEST(SharedMemoryCommunicatorTest, ItsMemoryOutlivesItAndCountsUntilThen) {
  activations::CountingAllocator::install();
  RankOptions options;
  options.backend = RankBackend::kSharedMemory;
  run_ranks(
      2,
      [](int rank, Communicator& ranks) {
        const activations::CountingAllocator& allocator =
            activations::CountingAllocator::instance();
        std::unique_ptr<Communicator> part = ranks.split(0, rank);
        const int64_t before = allocator.live_bytes();
        at::Tensor tensor = part->zeros(10000, at::kFloat);
        EXPECT_EQ(allocator.live_bytes() - before, 40000);
        tensor.fill_(rank);
        part->all_reduce(tensor);
        part.reset();
        EXPECT_EQ(tensor.sum().item<float>(), 10000);
        EXPECT_EQ(allocator.live_bytes() - before, 40000);
        tensor.reset();
        EXPECT_EQ(allocator.live_bytes(), before);
      },
      options);
}

// The rank without memory reports this, and no rank waits for it.
TEST(SharedMemoryCommunicatorTest, MemoryBeyondTheLimitIsRefusedOnOneRank) {
  activations::CountingAllocator::install();
  RankOptions options;
  options.backend = RankBackend::kSharedMemory;
  run_ranks(
      2,
      [](int rank, Communicator& ranks) {
        activations::CountingAllocator& allocator =
            activations::CountingAllocator::instance();
        if (rank == 1) {
          allocator.set_limit(allocator.live_bytes() + 30000);
          EXPECT_THROW(ranks.zeros(10000, at::kFloat), c10::OutOfMemoryError);
          allocator.set_limit(activations::CountingAllocator::kNoLimit);
        } else {
          EXPECT_EQ(ranks.zeros(10000, at::kFloat).numel(), 10000);
        }
        const at::Tensor tensor = at::ones({10000});
        ranks.all_reduce(tensor);
        EXPECT_EQ(tensor[9999].item<float>(), 2);
      },
      options);
}

// If one of the two connections to a peer fails, the other one fails too.
TEST(SharedMemoryCommunicatorTest, AFailureEndsTheNetworkToo) {
  RankOptions options;
  options.backend = RankBackend::kSharedMemory;
  EXPECT_THROW(run_ranks(
                   3,
                   [](int rank, Communicator& ranks) {
                     ranks.barrier();
                     if (rank == 0) throw std::runtime_error("rank 0 dies");
                     const at::Tensor tensor = at::ones({10});
                     if (rank == 1) {
                       EXPECT_THROW(ranks.barrier(), CommunicationError);
                       EXPECT_THROW(ranks.send(tensor, 2), CommunicationError);
                     } else {
                       const auto [what, taken] = communication_error_of(
                           [&] { ranks.recv(tensor, 1); });
                       EXPECT_LT(taken, seconds(5)) << what;
                       EXPECT_THROW(ranks.barrier(), CommunicationError);
                     }
                   },
                   options),
               std::runtime_error);
}

TEST(LocalCommunicatorTest, DifferentCallsAreAnErrorNotAHang) {
  EXPECT_THROW(run_ranks(2,
                         [](int rank, Communicator& ranks) {
                           if (rank == 0) {
                             ranks.barrier();
                           } else {
                             ranks.all_reduce(at::ones({3}));
                           }
                         }),
               CommunicationError);
  EXPECT_THROW(run_ranks(2,
                         [](int rank, Communicator& ranks) {
                           ranks.all_reduce(at::ones({3 + rank}));
                         }),
               CheckFailure);
}

// A rank that is told about a loss releases its threads that wait. If a cable
// was cut, neither the peer nor the network reports anything.
using NetworkLossTest = testing::TestWithParam<RankBackend>;

TEST_P(NetworkLossTest, ReleasesRanksThatWaitForAnyOperation) {
  using Operation = std::function<void(Communicator&)>;
  // The tensor is allocated here. On a busy machine, filling it inside the
  // operation could take longer than the 300 ms after which the loss is
  // announced.
  const at::Tensor large = at::ones({32 << 20});
  const std::map<std::string, Operation> operations = {
      {"all_reduce", [](auto& ranks) { ranks.all_reduce(at::ones({1000})); }},
      {"all_gather",
       [](auto& ranks) {
         ranks.all_gather(at::empty({2000}), at::ones({1000}));
       }},
      {"reduce_scatter",
       [](auto& ranks) {
         ranks.reduce_scatter(at::empty({1000}), at::ones({2000}));
       }},
      {"broadcast", [](auto& ranks) { ranks.broadcast(at::ones({1000}), 1); }},
      {"send", [&](auto& ranks) { ranks.send(large, 1); }},
      {"recv", [](auto& ranks) { ranks.recv(at::empty({1000}), 1); }},
      {"barrier", [](auto& ranks) { ranks.barrier(); }}};
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    RankOptions options;
    options.backend = GetParam();
    options.operation_timeout = seconds(60);
    Gate gate(1);
    run_ranks(
        2,
        [&](int rank, Communicator& ranks) {
          if (rank == 1) {
            gate.wait_for_all();
            return;
          }
          std::thread learns(learn_of_a_loss);
          const auto [what, taken] =
              communication_error_of([&] { operation(ranks); });
          learns.join();
          EXPECT_THAT(what, HasSubstr("rank 0 of 2"));
          EXPECT_THAT(taken, AllOf(Ge(milliseconds(250)), Lt(seconds(2))))
              << name;
          gate.pass_one();
        },
        options);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NetworkLossTest,
                         testing::Values(RankBackend::kNetwork,
                                         RankBackend::kLazyNetwork),
                         [](const auto& info) {
                           return to_string(info.param);
                         });

// Ranks 0 and 1, 2 and 3, 4 and 5 share a machine; 0, 2 and 4 are the leaders.
RankOptions three_machines(milliseconds timeout) {
  RankOptions options;
  options.backend = RankBackend::kMachines;
  options.machine_of_rank = {0, 0, 1, 1, 2, 2};
  options.operation_timeout = timeout;
  return options;
}

TEST(SumsByMachineTest, ADeadRankIsNamedAndEndsTheSumEverywhere) {
  for (const int dead : {3, 2}) {
    SCOPED_TRACE(dead);
    EXPECT_THROW(
        run_ranks(
            6,
            [&](int rank, Communicator& ranks) {
              const at::Tensor sum = at::ones({100});
              ranks.all_reduce(sum);
              if (rank == dead) throw std::runtime_error("it dies");
              const auto [what, taken] = communication_error_of([&] {
                for (int i = 0; i < 3; ++i) ranks.all_reduce(sum);
              });
              EXPECT_THAT(what, HasSubstr("rank " + std::to_string(rank) +
                                          " of 6, all_reduce: "));
              // The other rank of its machine sees which one died, the others
              // that its machine's leader has closed the connection.
              if (rank / 2 == 1) {
                EXPECT_THAT(what, HasSubstr("rank " + std::to_string(dead)));
              }
              if (rank < 2) {
                EXPECT_THAT(what, HasSubstr("rank 2"));
              }
              EXPECT_LT(taken, seconds(5));
            },
            three_machines(seconds(20))),
        std::runtime_error);
  }
}

TEST(SumsByMachineTest, AHangingRankIsNamedAfterTheTimeLimit) {
  Gate others(5);
  run_ranks(
      6,
      [&](int rank, Communicator& ranks) {
        ranks.barrier();
        if (rank == 3) {
          others.wait_for_all();
          return;
        }
        const std::string what = error_of_late_sum(ranks, others);
        // Ranks of its machine name it, those of the next machine its leader.
        if (rank == 2) {
          EXPECT_THAT(what, HasSubstr("rank 3"));
        }
        if (rank < 2) {
          EXPECT_THAT(what, HasSubstr("rank 2"));
        }
        EXPECT_THAT(what, HasSubstr("all_reduce: "));
      },
      three_machines(milliseconds(1500)));
}

TEST(SumsByMachineTest, ALossReleasesRanksThatWaitInSharedMemory) {
  Gate others(5);
  std::optional<std::thread> learns;
  run_ranks(
      6,
      [&](int rank, Communicator& ranks) {
        ranks.barrier();
        if (rank == 3) {
          others.wait_for_all();
          return;
        }
        if (rank == 0) learns.emplace(learn_of_a_loss);
        const at::Tensor sum = at::ones({100});
        const auto [what, taken] =
            communication_error_of([&] { ranks.all_reduce(sum); });
        EXPECT_THAT(what, HasSubstr("all_reduce: "));
        EXPECT_LT(taken, seconds(5));
        others.pass_one();
      },
      three_machines(seconds(60)));
  learns->join();
}

// A rank that fails in a message ends the sum of its machine.
TEST(SumsByMachineTest, AFailureOfTheNetworkEndsTheSumsInMemory) {
  EXPECT_THROW(run_ranks(
                   6,
                   [&](int rank, Communicator& ranks) {
                     ranks.barrier();
                     if (rank == 5) throw std::runtime_error("rank 5 dies");
                     const at::Tensor sum = at::ones({100});
                     const auto [what, taken] = communication_error_of([&] {
                       if (rank == 1) ranks.recv(sum, 5);
                       if (rank != 1) ranks.all_reduce(sum);
                     });
                     EXPECT_LT(taken, seconds(5)) << what;
                   },
                   three_machines(seconds(20))),
               std::runtime_error);
}

// This is the first message between the two ranks, so their connection is not
// open yet, and rank 3 never starts to receive.
TEST(NetworkCommunicatorTest, ALossReleasesRanksThatWaitForALazyConnection) {
  RankOptions options;
  options.backend = RankBackend::kLazyNetwork;
  options.operation_timeout = seconds(60);
  Gate gate(1);
  run_ranks(
      8,
      [&](int rank, Communicator& ranks) {
        if (rank != 0) {
          gate.wait_for_all();
          return;
        }
        std::thread learns(learn_of_a_loss);
        const auto [what, taken] =
            communication_error_of([&] { ranks.send(at::ones({1000}), 3); });
        learns.join();
        EXPECT_THAT(what, HasSubstr("rank 0 of 8, send"));
        EXPECT_THAT(taken, AllOf(Ge(milliseconds(250)), Lt(seconds(2))));
        gate.pass_one();
      },
      options);
}

// One of the two ranks opens the connection, and the other one waits for it.
// Both directions are tested.
TEST(NetworkCommunicatorTest, ALazyConnectionHasTheTimeLimitOfAnOperation) {
  for (const auto& [receiver, sender] : {std::pair(0, 3), std::pair(3, 0)}) {
    RankOptions options;
    options.backend = RankBackend::kLazyNetwork;
    options.operation_timeout = milliseconds(1500);
    Gate gate(1);
    run_ranks(
        8,
        [&, receiver = receiver, sender = sender](int rank,
                                                  Communicator& ranks) {
          if (rank != receiver) {
            gate.wait_for_all();
            return;
          }
          const auto [what, taken] = communication_error_of(
              [&] { ranks.recv(at::ones({1000}), sender); });
          EXPECT_THAT(what,
                      AllOf(HasSubstr("of 8, recv"), HasSubstr("imed out")));
          EXPECT_THAT(taken, AllOf(Ge(milliseconds(1400)), Lt(seconds(4))));
          gate.pass_one();
        },
        options);
  }
}

// A rank that fails opens no connection to report this. Its peers fail at once,
// although each is connected to only some of the other ranks.
TEST(NetworkCommunicatorTest, AFailureOfALazyGroupOpensNoConnection) {
  constexpr int kRanks = 24;
  RankOptions options;
  options.backend = RankBackend::kLazyNetwork;
  options.operation_timeout = seconds(60);
  std::atomic<size_t> before = 0, after = 0;
  Gate met(kRanks), failed(kRanks);
  std::optional<std::thread> learns;
  const auto work = [&](int rank, Communicator& ranks) {
    ranks.barrier();
    if (rank == 0) before = open_sockets();
    met.pass_one();
    met.wait_for_all();
    const at::Tensor tensor = at::ones({100000});
    const auto under_way = ranks.all_reduce_async(tensor, ReduceOp::kSum);
    if (rank == 5) {
      failed.pass_one();
      throw std::runtime_error("rank 5 dies");
    }
    if (rank == 0) learns.emplace(learn_of_a_loss);
    const auto [what, taken] = communication_error_of([&] {
      under_way->wait();
      ranks.all_reduce(tensor);
    });
    EXPECT_THAT(what, HasSubstr("all_reduce"));
    EXPECT_LT(taken, seconds(5));
    failed.pass_one();
    failed.wait_for_all();
    if (rank == 0) after = open_sockets();
  };
  EXPECT_THROW(run_ranks(kRanks, work, options), std::runtime_error);
  learns->join();
  EXPECT_LE(after, before);
}

// A rank is late because it writes a checkpoint; no rank may be reported lost.
TEST(PeerNewsTest, ARankThatWorksIsWaitedForBeyondTheLimit) {
  for (const RankBackend backend :
       {RankBackend::kNetwork, RankBackend::kLazyNetwork,
        RankBackend::kSharedMemory}) {
    SCOPED_TRACE(to_string(backend));
    RankOptions options;
    options.backend = backend;
    options.operation_timeout = milliseconds(600);
    run_ranks(
        2,
        [&](int rank, Communicator& ranks) {
          PeerNews::note(true);
          if (rank == 1) std::this_thread::sleep_for(milliseconds(1500));
          const at::Tensor sum = at::ones({10});
          ranks.all_reduce(sum);
          EXPECT_EQ(sum[0].item<float>(), 2);
          if (rank == 1) std::this_thread::sleep_for(milliseconds(1500));
          if (rank == 1) ranks.send_async(sum, 0)->wait();
          if (rank == 0) ranks.recv_async(sum, 1)->wait();
        },
        options);
    PeerNews::note(false);
    EXPECT_THROW(run_ranks(
                     2,
                     [](int rank, Communicator& ranks) {
                       at::Tensor sum = at::ones({10});
                       if (rank == 0) ranks.recv_async(sum, 1)->wait();
                       if (rank == 1) {
                         std::this_thread::sleep_for(milliseconds(3000));
                       }
                     },
                     options),
                 std::runtime_error)
        << "nobody works";
  }
}

// The objects of asynchronous operations may still exist after a failure. Those
// of gradient buckets exist until the next generation.
TEST(NetworkCommunicatorTest,
     ARankThatLeavesReleasesItsPeersThoughItsWorksAreHeld) {
  for (const RankBackend backend :
       {RankBackend::kNetwork, RankBackend::kLazyNetwork}) {
    SCOPED_TRACE(to_string(backend));
    RankOptions options;
    options.backend = backend;
    options.operation_timeout = seconds(8);
    Gate released(1);
    run_ranks(
        2,
        [&](int rank, Communicator& ranks) {
          const at::Tensor sum = at::ones({10});
          const auto work = ranks.all_reduce_async(sum, ReduceOp::kSum);
          if (rank == 0) {
            std::this_thread::sleep_for(milliseconds(300));
            ranks.abandon();
            released.wait_for_all();
            return;
          }
          work->wait();
          const auto begin = std::chrono::steady_clock::now();
          EXPECT_THROW(ranks.all_reduce(sum), CommunicationError);
          EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
          released.pass_one();
        },
        options);
  }
}

TEST(NetworkCommunicatorTest, DifferentCallsAreAnErrorNotAHang) {
  RankOptions options;
  options.backend = RankBackend::kNetwork;
  const auto fails = [&](const std::function<void(int, Communicator&)>& body) {
    run_ranks(
        2,
        [&](int rank, Communicator& ranks) {
          const auto [what, taken] =
              communication_error_of([&] { body(rank, ranks); });
          EXPECT_THAT(what,
                      HasSubstr("rank " + std::to_string(rank) + " of 2"));
          EXPECT_LT(taken, seconds(5)) << what;
        },
        options);
  };
  fails([](int rank, Communicator& ranks) {
    ranks.all_reduce(at::ones({3 + rank}));
  });
  fails([](int rank, Communicator& ranks) {
    if (rank == 0) ranks.barrier();
    if (rank == 1) ranks.all_reduce(at::ones({3}));
  });
  fails([](int rank, Communicator& ranks) {
    if (rank == 0) ranks.recv(at::ones({3}), 1);
    if (rank == 1) ranks.send(at::ones({4}), 0);
    ranks.barrier();
  });
}

TEST(NetworkCommunicatorTest, APeerThatNeverConnectsIsNamedInTime) {
  NetworkOptions options;
  options.timeout = milliseconds(500);
  const auto store = std::make_shared<InMemoryStore>();
  const auto [what, taken] = communication_error_of(
      [&] { make_network_communicator(store, "alone", 0, 2, options); });
  EXPECT_THAT(what, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("connecting")));
  EXPECT_THAT(taken, AllOf(Ge(milliseconds(450)), Lt(seconds(5))));
}

TEST(NetworkCommunicatorTest,
     AThreadThatLearnsOfALossReleasesOneThatIsConnecting) {
  NetworkOptions options;
  options.timeout = seconds(8);
  const auto store = std::make_shared<InMemoryStore>();
  std::thread learns(learn_of_a_loss);
  const auto [what, taken] = communication_error_of(
      [&] { make_network_communicator(store, "left", 0, 2, options); });
  learns.join();
  EXPECT_THAT(what, AllOf(HasSubstr("connecting"), HasSubstr("aborted")));
  EXPECT_THAT(taken, AllOf(Ge(milliseconds(250)), Lt(seconds(6))));
}

TEST(NetworkCommunicatorTest, AnAddressOfAnotherMachineIsRefused) {
  NetworkOptions options;
  options.hostname = "192.0.2.1";  // reserved for documentation
  const auto store = std::make_shared<InMemoryStore>();
  try {
    make_network_communicator(store, "foreign", 0, 2, options);
    FAIL() << "an address that this machine does not have";
  } catch (const CommunicationError& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.tag(), "gloo");
    EXPECT_THAT(error.what(), HasSubstr("192.0.2.1"));
  }
}

}  // namespace
}  // namespace headroom::collectives
