// Tests the CUDA plugin's communicator on test devices with the replacement for
// NCCL (tests/support/nccl_shim). Ranks are threads on devices 1 and 2. No rank
// uses the first device, so a context there would be a mistake.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/local_communication_error.h"
#include "tests/parallel/cuda/nccl_checks.h"
#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Ranks = std::unique_ptr<collectives::Communicator>;

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

class FaultsOf {
 public:
  explicit FaultsOf(const std::string& faults) {
    setenv("HEADROOM_NCCL_FAULTS", faults.c_str(), 1);
  }
  ~FaultsOf() { unsetenv("HEADROOM_NCCL_FAULTS"); }
};

class NcclRanks : public ::testing::Test {
 protected:
  // Returns the error of each of two ranks; empty if there was none.
  std::vector<std::string> run(
      const std::function<void(int rank, Ranks& ranks, c10::Device device)>&
          body) {
    devices::DeviceApi& api = test_device_api();
    auto hosts = collectives::make_local_communicators(2);
    std::vector<std::string> ends(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          devices::DeviceCommunicatorOptions options;
          options.device = rank + 1;
          options.timeout = timeout_;
          const c10::Device device = test_device(options.device);
          c10::impl::getDeviceGuardImpl(device.type())->setDevice(device);
          // If a rank ends, its peers' communicators are ended too.
          const Ranks host = std::move(hosts[static_cast<size_t>(rank)]);
          Ranks ranks = api.connect_ranks(*host, options)->over(*host);
          ranks->connect();
          body(rank, ranks, device);
        } catch (const LocalCommunicationError& error) {
          ends[static_cast<size_t>(rank)] =
              std::string("own communication: ") + error.what();
        } catch (const CommunicationError& error) {
          ends[static_cast<size_t>(rank)] =
              std::string("communication: ") + error.what();
        } catch (const std::exception& error) {
          ends[static_cast<size_t>(rank)] =
              std::string(error.what()).substr(0, 300);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }
  void expect_calm(const std::vector<std::string>& ends) {
    EXPECT_EQ(ends, std::vector<std::string>(2));
  }

  milliseconds timeout_ = seconds(20);
};

at::Tensor ones_on(c10::Device device, int64_t count = 100) {
  return at::ones({count}, at::TensorOptions(device));
}

TEST_F(NcclRanks, CollectivesAndPartsAreRight) {
  expect_calm(run([](int, Ranks& ranks, c10::Device device) {
    check_nccl(*ranks, device);
  }));
}

TEST_F(NcclRanks, WaitOrdersStreamsAndNotTheHost) {
  expect_calm(run([](int rank, Ranks& ranks, c10::Device device) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(500));
    const at::Tensor sum = ones_on(device);
    const double host = seconds_of([&] {
      ranks->all_reduce(sum);
      sum.mul_(2);
    });
    EXPECT_LT(host, 0.3);
    at::Tensor read;
    const double device_time = seconds_of([&] { read = sum.cpu(); });
    EXPECT_TRUE(read.equal(at::full({100}, 4.0f)));
    EXPECT_TRUE(rank == 1 || device_time > 0.3) << device_time;
  }));
}

// The longest time, in ms, during which the process gave no sign of life while
// `action` had set `is_waiting`. The first 200 ms are not counted.
int64_t longest_quiet(
    const std::function<void(std::atomic<bool>& is_waiting)>& action) {
  std::atomic<bool> is_waiting{false};
  std::atomic<int64_t> quiet{0};
  std::thread watcher([&] {
    while (!is_waiting) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(200));
    while (is_waiting) {
      quiet = std::max<int64_t>(quiet, PeerWait::quiet().count());
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  action(is_waiting);
  watcher.join();
  return quiet;
}

// If the host reads a value after a collective, or the device's queue is full,
// the host waits for its peers. In this case the peers are late, and this rank
// is not stuck.
class NcclLatePeer : public NcclRanks {
 protected:
  // Rank 1 joins a sum late; both ranks call `wait` after the sum.
  void expect_signs_of_life(const std::function<void(at::Tensor&)>& wait,
                            float expected) {
    EXPECT_LT(
        longest_quiet([&](std::atomic<bool>& is_waiting) {
          expect_calm(run([&](int rank, Ranks& ranks, c10::Device device) {
            at::Tensor sum = ones_on(device);
            if (rank == 1) std::this_thread::sleep_for(milliseconds(800));
            ranks->all_reduce(sum);
            if (rank == 0) is_waiting = true;
            wait(sum);
            if (rank == 0) is_waiting = false;
            EXPECT_EQ(sum.cpu()[0].item<float>(), expected);
          }));
        }),
        400)  // without signs it would be 600; a busy machine delays signs
        << "ms without a sign of life";
  }
};

TEST_F(NcclLatePeer, AReaderBehindItWaitsForIt) {
  expect_signs_of_life(
      [](at::Tensor& sum) { EXPECT_EQ(sum.sum().item<float>(), 200); }, 2);
}

TEST_F(NcclLatePeer, AFullQueueBehindItCountsAsAWaitForIt) {
  expect_signs_of_life(
      [](at::Tensor& sum) {
        for (int i = 0; i < 3000; ++i) sum.add_(1);
      },
      3002);
}

// The peer never joins the collective. A thread that is told about the loss
// releases the rank.
TEST_F(NcclRanks, ALostPeerReleasesWaitingRanks) {
  const double taken = seconds_of([&] {
    const auto ends = run([&](int rank, Ranks& ranks, c10::Device device) {
      if (rank == 1) {
        std::this_thread::sleep_for(milliseconds(300));
        test_device_api().abort_communicators();
        return;
      }
      const at::Tensor sum = ones_on(device);
      ranks->all_reduce(sum);
      sum.cpu();
      ranks->check();
    });
    EXPECT_THAT(ends[0], HasSubstr("rank 0 of 2, a peer was lost"));
  });
  EXPECT_LT(taken, 2);
}

TEST_F(NcclRanks, ALostPeerReleasesConnectingRanks) {
  const FaultsOf faults("call=CommInitRankScalable,rank=1,kind=never");
  std::thread finder([] {
    std::this_thread::sleep_for(milliseconds(300));
    test_device_api().abort_communicators();
  });
  const double taken = seconds_of([&] {
    const auto ends = run([](int, Ranks&, c10::Device) {});
    for (const std::string& end : ends) {
      EXPECT_THAT(end, HasSubstr("communication: "));
    }
  });
  finder.join();
  EXPECT_LT(taken, 2);
}

TEST_F(NcclRanks, WatchingMakesNoContextOnTheFirstDevice) {
  expect_calm(run([](int, Ranks& ranks, c10::Device device) {
    const at::Tensor sum = ones_on(device);
    ranks->all_reduce(sum);
    sum.cpu();
    const Ranks part = ranks->split(0, ranks->rank());
    part->all_reduce(sum);
    // In this time the watch checks the operations several times.
    std::this_thread::sleep_for(milliseconds(100));
    sum.cpu();
  }));
  EXPECT_TRUE(TestDeviceMemory::of(1).has_context());
  EXPECT_FALSE(TestDeviceMemory::of(0).has_context());
}

// The bytes in addition to tensors; connections need such memory.
int64_t bytes_beside_tensors(c10::Device device) {
  const TestDeviceMemory& memory = TestDeviceMemory::of(device.index());
  return memory.own_bytes() - memory.live_bytes();
}

TEST_F(NcclRanks, GroupsOfTheSameRanksShareAConnection) {
  expect_calm(run([](int, Ranks& ranks, c10::Device device) {
    const int64_t before = bytes_beside_tensors(device);
    EXPECT_GE(before, 1 << 20);
    std::vector<Ranks> parts;
    for (int i = 0; i < 5; ++i) {
      parts.push_back(ranks->split(0, ranks->rank()));
      parts.back()->all_reduce(ones_on(device));
    }
    ranks->synchronize();
    EXPECT_EQ(bytes_beside_tensors(device), before);
    const Ranks reversed = ranks->split(0, -ranks->rank());
    reversed->connect();
    EXPECT_GE(bytes_beside_tensors(device), before + (1 << 20))
        << "another order is another connection";
  }));
}

TEST_F(NcclRanks, UnusedGroupsAreNotConnected) {
  expect_calm(run([](int, Ranks& ranks, c10::Device device) {
    const int64_t before = bytes_beside_tensors(device);
    const Ranks reversed = ranks->split(0, -ranks->rank());
    const Ranks alone = ranks->split(ranks->rank(), 0);
    alone->connect();
    reversed->check();
    reversed->synchronize();
    EXPECT_EQ(bytes_beside_tensors(device), before);
  }));
}

// Each rank posts a receive before the send that its peer waits for, as stages
// of a pipeline do: on one stream neither rank would go on. The host waits for
// nothing.
TEST_F(NcclRanks, MessagesOfTwoDirectionsPassEachOther) {
  expect_calm(run([](int rank, Ranks& ranks, c10::Device device) {
    ranks->connect_messages();
    const int64_t before = bytes_beside_tensors(device);
    ranks->connect_messages();
    EXPECT_EQ(bytes_beside_tensors(device), before) << "once is enough";
    const int peer = 1 - rank;
    constexpr int64_t kCount = 100003;  // more than one window of the shim
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<collectives::Work>> works;
    for (int i = 0; i < 3; ++i) {
      tensors.push_back(at::zeros({kCount}, at::TensorOptions(device)));
      works.push_back(ranks->recv_async(tensors.back(), peer));
      tensors.push_back(ones_on(device, kCount) * (10 * rank + i));
      works.push_back(ranks->send_async(tensors.back(), peer));
      ranks->all_reduce(ones_on(device));
    }
    for (const auto& work : works) work->wait();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(tensors[2 * i].cpu().equal(
          at::full({kCount}, static_cast<float>(10 * peer + i))));
    }
  }));
}

TEST_F(NcclRanks, AMessageFromALostPeerFails) {
  const auto ends = run([](int rank, Ranks& ranks, c10::Device device) {
    ranks->connect_messages();
    if (rank == 1) {
      test_device_api().abort_communicators();
      return;
    }
    const at::Tensor map = ones_on(device);
    ranks->recv(map, 1);
    ranks->synchronize();
  });
  EXPECT_THAT(ends[0], HasSubstr("a peer was lost"));
}

// Rank 1 uses the two groups later than rank 0, and each group waits only for
// its own ranks.
TEST_F(NcclRanks, GroupsConnectInTheOrderOfTheirUse) {
  expect_calm(run([](int rank, Ranks& ranks, c10::Device device) {
    const Ranks first = ranks->split(0, -rank);
    const Ranks second = ranks->split(0, rank);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
    const at::Tensor sum = ones_on(device);
    for (int i = 0; i < 2; ++i) {
      second->all_reduce(sum);
      first->all_reduce(sum);
    }
    EXPECT_EQ(sum.cpu()[0].item<float>(), 16);
  }));
}

TEST_F(NcclRanks, AnOlderLibraryIsRefused) {
  setenv("HEADROOM_NCCL_VERSION", "21805", 1);
  const auto ends = run([](int, Ranks&, c10::Device) {});
  unsetenv("HEADROOM_NCCL_VERSION");
  for (const std::string& end : ends) {
    EXPECT_THAT(end, HasSubstr("[nccl] NCCL 2.18.5 was loaded from "));
    EXPECT_THAT(end, HasSubstr("LD_LIBRARY_PATH"));
  }
}

// A full device is reported as such, with a remedy, and not as a lost peer.
TEST_F(NcclRanks, AFullDeviceIsRefusedAsOne) {
  timeout_ = milliseconds(700);
  for (const char* when : {"call=CommInitRankScalable,rank=1,kind=full",
                           "call=AllReduce,rank=1,kind=full"}) {
    SCOPED_TRACE(when);
    const FaultsOf faults(when);
    const auto ends = run([&](int, Ranks& ranks, c10::Device device) {
      ranks->all_reduce(ones_on(device));
    });
    EXPECT_THAT(ends[1], HasSubstr("the device has no memory for NCCL"));
    EXPECT_THAT(ends[1], HasSubstr("use a smaller --batch"));
  }
}

// The exception of a lost peer has already been caught when the thread handles
// it. Ending the communicator must not wait for the peer's operations then.
TEST_F(NcclRanks, EndingAfterAFailureDoesNotWait) {
  std::atomic<bool> has_ended{false};
  const auto ends = run([&](int rank, Ranks& ranks, c10::Device device) {
    if (rank == 1) {
      while (!has_ended) std::this_thread::sleep_for(milliseconds(5));
      ranks->abandon();
      return;
    }
    const at::Tensor sum = ones_on(device);
    ranks->all_reduce(sum);
    EXPECT_LT(seconds_of([&] {
                try {
                  throw CommunicationError("another connection ended");
                } catch (const CommunicationError&) {
                  ranks->abandon();
                  ranks.reset();
                }
              }),
              2);
    has_ended = true;
  });
  expect_calm(ends);
}

TEST_F(NcclRanks, FailedCallsAreReported) {
  timeout_ = milliseconds(700);
  struct Case {
    const char* faults;
    const char* words;
  };
  for (const Case& fault :
       {Case{"call=AllReduce,rank=0,kind=refuse,result=3", "internal error"},
        Case{"call=AllReduce,rank=0,kind=fail,result=6", "remote process"},
        Case{"call=AllReduce,rank=0,kind=never", "no answer within "},
        Case{"call=AllReduce,rank=0,kind=hang", "not done after 700 ms"},
        Case{"call=CommInitRankScalable,rank=0,kind=never",
             "connecting: no answer within "}}) {
    SCOPED_TRACE(fault.faults);
    const FaultsOf faults(fault.faults);
    const auto ends = run([](int, Ranks& ranks, c10::Device device) {
      const at::Tensor sum = ones_on(device);
      ranks->all_reduce(sum);
      ranks->synchronize();
    });
    EXPECT_THAT(ends[0], HasSubstr("communication: "));
    EXPECT_THAT(ends[0], HasSubstr(fault.words));
  }
}

// A failure of this process is not blamed on a peer, and the message has a
// remedy.
TEST_F(NcclRanks, AFailureOfItsOwnIsNoLostPeer) {
  timeout_ = milliseconds(700);
  for (const bool is_own : {true, false}) {
    const FaultsOf faults("call=AllReduce,rank=0,kind=fail,result=" +
                          std::string(is_own ? "2" : "6"));
    const auto ends = run([](int, Ranks&, c10::Device) {});
    EXPECT_EQ(ends[0].starts_with("own communication: "), is_own) << ends[0];
    EXPECT_THAT(ends[0], HasSubstr("communication: "));
  }
}

TEST_F(NcclRanks, ARankThatWorksIsWaitedForBeyondTheLimit) {
  timeout_ = milliseconds(500);
  PeerNews::note(true);
  expect_calm(run([](int rank, Ranks& ranks, c10::Device device) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(1200));
    const at::Tensor sum = ones_on(device);
    ranks->all_reduce(sum);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(1200));
    ranks->all_reduce(sum);
    ranks->synchronize();
    EXPECT_EQ(sum.cpu()[0].item<float>(), 4);
  }));
  PeerNews::note(false);
}

TEST_F(NcclRanks, CallsThatAreSlowAreWaitedFor) {
  const FaultsOf faults("call=AllReduce,rank=1,kind=delay,ms=200");
  expect_calm(run([](int, Ranks& ranks, c10::Device device) {
    const at::Tensor sum = ones_on(device);
    for (int i = 0; i < 2; ++i) ranks->all_reduce(sum);
    EXPECT_EQ(sum.cpu()[0].item<float>(), 4);
  }));
}

// An aborted sum leaves undefined values, which must not be sent to peers.
TEST_F(NcclRanks, AResultThatFailedOnTheDeviceIsNotUsedForTheVoteOnTheHost) {
  timeout_ = milliseconds(500);
  auto hosts = collectives::make_local_communicators(2);
  const auto ends = run([&](int rank, Ranks& ranks, c10::Device device) {
    devices::DeviceCommunicatorOptions options;
    options.device = rank + 1;
    options.timeout = timeout_;
    Ranks& host = hosts[static_cast<size_t>(rank)];
    auto devices = test_device_api().connect_ranks(*host, options);
    const Ranks device_host = collectives::make_device_host_communicator(
        std::move(host), std::move(devices));
    device_host->connect();
    ranks.reset();
    const FaultsOf faults("call=AllReduce,rank=0,kind=hang");
    const at::Tensor sum = ones_on(device);
    device_host->all_reduce(sum);
    sum.cpu();  // returns when the sum is aborted
    device_host->all_reduce(at::zeros({1}, at::kLong));
    ADD_FAILURE() << "voted with " << sum.cpu()[0];
  });
  EXPECT_THAT(ends[0], HasSubstr("communication: "));
  EXPECT_THAT(ends[1], HasSubstr("communication: "));
}

// Work that was queued behind a sum must see that the sum was aborted, even if
// it runs before the host has noticed.
TEST_F(NcclRanks, WorkBehindAnAbortedSumReadsThatItFailed) {
  timeout_ = milliseconds(500);
  const auto ends = run([&](int, Ranks& ranks, c10::Device device) {
    const std::shared_ptr<const int32_t> word = ranks->failure_word();
    ASSERT_NE(word, nullptr);
    const at::Tensor sum = ones_on(device);
    ranks->all_reduce(sum);
    EXPECT_EQ(sum.cpu()[0].item<float>(), 2);
    EXPECT_EQ(*word, 0);
    const FaultsOf faults("call=AllReduce,rank=0,kind=hang");
    ranks->all_reduce(sum);
    sum.cpu();  // returns when the sum is aborted
    EXPECT_EQ(*word, 1);
    ranks->check();
  });
  EXPECT_THAT(ends[0], HasSubstr("communication: "));
}

// The host's time for the call of a collective, which NCCL executes in another
// thread.
TEST_F(NcclRanks, ACallTakesTheHostMicroseconds) {
  expect_calm(run([](int rank, Ranks& ranks, c10::Device device) {
    const at::Tensor sum = ones_on(device);
    constexpr int kCalls = 200;
    std::vector<double> taken;
    for (int i = 0; i < kCalls; ++i) {
      taken.push_back(seconds_of([&] { ranks->all_reduce(sum); }));
    }
    ranks->synchronize();
    std::ranges::sort(taken);
    if (rank == 0) {
      std::printf("a call: a tenth below %.0f us, median %.0f us\n",
                  taken[kCalls / 10] * 1e6, taken[kCalls / 2] * 1e6);
    }
    // Other programs on the machine make some calls slow, but not all.
    EXPECT_LT(taken[kCalls / 10], 2e-3);
  }));
}

}  // namespace
}  // namespace headroom::cuda
