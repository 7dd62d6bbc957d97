#include "parallel/collectives/network_measurement.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <system_error>

#include "parallel/collectives/gather.h"

namespace headroom::collectives {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr Seconds kLongestMeeting{0.25};
constexpr int kPings = 8;
constexpr int64_t kFirstBytes = 4 << 10;
constexpr int64_t kMostBytes = 8 << 20;
constexpr int64_t kGrowth = 4;

// The measurements of a machine's rank, as integers so that all ranks can
// gather them.
struct Measured {
  int64_t slowest = std::numeric_limits<int64_t>::max();  // bytes a second
  int64_t fastest = 0;
  int64_t latency = 0;  // nanoseconds

  void add(const Measured& other) {
    slowest = std::min(slowest, other.slowest);
    fastest = std::max(fastest, other.fastest);
    latency = std::max(latency, other.latency);
  }
};

// Exchanges the messages of one pair. Each message begins with a header, the
// number of bytes that follow, or 0 at the end, and is acknowledged. The memory
// of the messages is not counted as tensor memory.
class Meeting {
 public:
  Meeting(Communicator& ranks, int peer)
      : ranks_(ranks), peer_(peer), bytes_(kMostBytes) {}

  Measured lead(Seconds most) {
    Seconds delay = say(1);
    for (int i = 1; i < kPings; ++i) delay = std::min(delay, say(1));
    double best = 0;
    Seconds spent{0};
    for (int64_t bytes = kFirstBytes;;) {
      const Seconds took = say(bytes);
      spent += took;
      // Subtract the message delay from the time.
      const double sending =
          std::max((took - delay).count(), 0.1 * took.count());
      best = std::max(best, static_cast<double>(bytes) / sending);
      if (bytes < kMostBytes) {
        const int64_t larger = std::min(kMostBytes, kGrowth * bytes);
        if (spent + kGrowth * took <= most) {
          bytes = larger;
          best = 0;  // ignores shorter messages, which only fill queues
          continue;
        }
      }
      if (spent + took > most) break;
    }
    end();
    const auto rate = std::max<int64_t>(1, std::llround(best));
    return {rate, rate, std::llround(delay.count() / 2 * 1e9)};
  }

  void follow() {
    while (true) {
      int64_t header = 0;
      receive(&header, sizeof(header));
      if (header <= 0 || header > kMostBytes) return;
      receive(bytes_.data(), header);
      send(&header, 1);
    }
  }

 private:
  // Sends a message and returns the time until its acknowledgement.
  Seconds say(int64_t bytes) {
    const Clock::time_point begin = Clock::now();
    send(&bytes, sizeof(bytes));
    send(bytes_.data(), bytes);
    uint8_t acknowledged = 0;
    receive(&acknowledged, 1);
    return Clock::now() - begin;
  }
  void end() {
    int64_t none = 0;
    send(&none, sizeof(none));
  }
  void send(void* data, int64_t bytes) {
    ranks_.send(at::from_blob(data, {bytes}, at::kByte), peer_);
  }
  void receive(void* data, int64_t bytes) {
    ranks_.recv(at::from_blob(data, {bytes}, at::kByte), peer_);
  }

  Communicator& ranks_;
  const int peer_;
  std::vector<uint8_t> bytes_;
};

// The first rank of each machine.
std::vector<int> first_ranks(const std::vector<int64_t>& machine_of_rank) {
  std::vector<int> first;
  for (size_t rank = 0; rank < machine_of_rank.size(); ++rank) {
    const auto found =
        std::ranges::find(machine_of_rank, machine_of_rank[rank]);
    if (found - machine_of_rank.begin() == static_cast<std::ptrdiff_t>(rank)) {
      first.push_back(static_cast<int>(rank));
    }
  }
  return first;
}

}  // namespace

int64_t this_machine() {
  std::string start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), start);
  std::error_code error;  // /proc may not be mounted
  const auto network =
      std::filesystem::read_symlink("/proc/self/ns/net", error);
  return static_cast<int64_t>(
      std::hash<std::string>()(start + "/" + network.string()));
}

std::vector<MachinePairs> measuring_rounds(int machines) {
  std::vector<MachinePairs> rounds;
  if (machines <= kMostMachinesOfAllPairs) {
    // The circle method: the last place is fixed, the other places rotate. An
    // odd number of machines leaves one place empty.
    const int places = machines + machines % 2;
    for (int round = 0; round + 1 < places; ++round) {
      MachinePairs& pairs = rounds.emplace_back();
      for (int i = 0; i < places / 2; ++i) {
        const auto at = [&](int place) {
          return place == places - 1 ? places - 1
                                     : (place + round) % (places - 1);
        };
        const auto [a, b] = std::minmax({at(i), at(places - 1 - i)});
        if (b < machines) pairs.emplace_back(a, b);
      }
    }
    return rounds;
  }
  rounds.resize(3);
  for (int i = 0; i + 1 < machines; ++i) rounds[i % 2].emplace_back(i, i + 1);
  for (int i = 0; i < machines / 2; ++i) {
    rounds[2].emplace_back(i, i + machines / 2);
  }
  return rounds;
}

std::optional<plan::NetworkRates> measure_network(
    Communicator& ranks, int64_t machine, const std::string& interface,
    std::chrono::milliseconds most) {
  const std::vector<int> leaders = first_ranks(tell_all(ranks, machine));
  const auto machines = static_cast<int>(leaders.size());
  if (machines == 1) return std::nullopt;
  const std::vector<MachinePairs> rounds = measuring_rounds(machines);
  const Seconds meeting = std::min(
      kLongestMeeting, Seconds(most) / static_cast<double>(rounds.size()));
  Measured mine;
  for (const MachinePairs& pairs : rounds) {
    for (const auto& [first, second] : pairs) {
      const int leads = leaders[static_cast<size_t>(first)];
      const int follows = leaders[static_cast<size_t>(second)];
      if (ranks.rank() == leads)
        mine.add(Meeting(ranks, follows).lead(meeting));
      if (ranks.rank() == follows) Meeting(ranks, leads).follow();
    }
  }
  Measured all;
  for (const Measured& one : tell_all(ranks, mine)) all.add(one);
  return plan::NetworkRates{
      .machines = machines,
      .interface = broadcast_bytes(ranks, interface, 0),
      .slowest_bytes_per_second = static_cast<double>(all.slowest),
      .fastest_bytes_per_second = static_cast<double>(all.fastest),
      .latency_seconds = static_cast<double>(all.latency) / 1e9,
      .is_sample = machines > kMostMachinesOfAllPairs};
}

}  // namespace headroom::collectives
