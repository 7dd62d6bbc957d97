// Measures how long the vote at the end of a step takes: one small sum over all
// ranks of several machines.
//
//   benchmark_vote [ROUNDS]
//
// Each machine is a network name space, its ranks are threads. Packets between
// two machines pass a switch, a thread of this program, which holds each packet
// for the delay of the network; the switch's own delay and that of the kernel
// come on top and are shown as the row of 0 ms. A machine's ranks share memory.
// Needs root and /dev/net/tun.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"
#include "tests/benchmarks/measures.h"
#include "tests/support/in_memory_store.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

void require(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(cat(what, ": ", std::strerror(errno)));
  }
}

std::string address_of(int machine) { return cat("10.79.0.", machine + 1); }

void change_interface(int socket, const char* name, int flags) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  request.ifr_flags = static_cast<short>(flags);
  require(ioctl(socket, SIOCSIFFLAGS, &request) == 0, name);
}

void set_address(int socket, unsigned long which, const std::string& address) {
  ifreq request{};
  std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
  auto& name = reinterpret_cast<sockaddr_in&>(request.ifr_addr);
  name.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &name.sin_addr);
  require(ioctl(socket, which, &request) == 0, address.c_str());
}

// A network name space with one interface, whose packets are read from and
// written to `cable`.
struct Machine {
  int name_space = -1;
  int cable = -1;
};

Machine make_machine(int number) {
  Machine machine;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      require(unshare(CLONE_NEWNET) == 0, "no network name space");
      machine.name_space = open("/proc/thread-self/ns/net", O_RDONLY);
      machine.cable = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
      ifreq request{};
      std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
      request.ifr_flags = IFF_TUN | IFF_NO_PI;
      require(ioctl(machine.cable, TUNSETIFF, &request) == 0, "/dev/net/tun");
      const int tool = socket(AF_INET, SOCK_DGRAM, 0);
      set_address(tool, SIOCSIFADDR, address_of(number));
      set_address(tool, SIOCSIFNETMASK, "255.255.255.0");
      change_interface(tool, "eth0", IFF_UP | IFF_RUNNING);
      change_interface(tool, "lo", IFF_UP | IFF_RUNNING);
      close(tool);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return machine;
}

// Forwards packets between the machines, each after `delay`.
class Switch {
 public:
  Switch(const std::vector<Machine>& machines, microseconds delay)
      : machines_(machines), delay_(delay), thread_([this] { forward(); }) {}
  ~Switch() {
    is_ending_ = true;
    thread_.join();
  }

 private:
  struct Packet {
    Clock::time_point due;
    int cable = -1;
    std::vector<char> bytes;
  };

  void forward() {
    prctl(PR_SET_TIMERSLACK, 1);
    std::vector<pollfd> cables;
    for (const Machine& machine : machines_) {
      cables.push_back({machine.cable, POLLIN, 0});
    }
    while (!is_ending_) {
      const auto wait =
          held_.empty()
              ? std::chrono::nanoseconds(50'000'000)
              : std::max(
                    std::chrono::nanoseconds(0),
                    std::chrono::nanoseconds(held_.front().due - Clock::now()));
      const timespec limit{0, static_cast<long>(wait.count())};
      ppoll(cables.data(), cables.size(), &limit, nullptr);
      for (const pollfd& cable : cables) {
        if ((cable.revents & POLLIN) != 0) take_from(cable.fd);
      }
      while (!held_.empty() && held_.front().due <= Clock::now()) {
        const Packet& packet = held_.front();
        // The kernel repeats a packet that is lost here.
        [[maybe_unused]] const ssize_t written =
            write(packet.cable, packet.bytes.data(), packet.bytes.size());
        held_.pop_front();
      }
    }
  }

  void take_from(int cable) {
    std::array<char, 1 << 16> bytes;
    for (;;) {
      const ssize_t count = read(cable, bytes.data(), bytes.size());
      if (count <= 0) return;
      const auto* const header = reinterpret_cast<const iphdr*>(bytes.data());
      if (header->version != 4) continue;
      const size_t machine = (ntohl(header->daddr) & 255) - 1;
      if (machine >= machines_.size()) continue;
      held_.push_back({Clock::now() + delay_,
                       machines_[machine].cable,
                       {bytes.data(), bytes.data() + count}});
    }
  }

  const std::vector<Machine>& machines_;
  const microseconds delay_;
  std::deque<Packet> held_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

// The median of the seconds from the start of a vote, at the same time on all
// ranks, until the last rank has the result.
double seconds_of_vote(const std::vector<Machine>& machines, int each,
                       int rounds) {
  const int size = static_cast<int>(machines.size()) * each;
  const auto store = std::make_shared<InMemoryStore>();
  std::barrier start(size);
  std::mutex mutex;
  std::vector<double> slowest(static_cast<size_t>(rounds));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const int machine = rank / each;
      require(setns(machines[machine].name_space, CLONE_NEWNET) == 0, "setns");
      at::set_num_threads(1);
      collectives::NetworkOptions options;
      options.hostname = address_of(machine);
      const auto world =
          collectives::share_memory(collectives::make_network_communicator(
                                        store, "vote", rank, size, options),
                                    options.timeout, machine);
      const at::Tensor reports = at::ones({7 * size + 8}, at::kDouble);
      for (int round = -5; round < rounds; ++round) {
        reports.fill_(1);
        start.arrive_and_wait();
        const double taken = seconds_of([&] { world->all_reduce(reports); });
        const std::lock_guard lock(mutex);
        if (round < 0) continue;
        double& of_all = slowest[static_cast<size_t>(round)];
        of_all = std::max(of_all, taken);
      }
      world->barrier();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return median(slowest);
}

void run(int rounds) {
  std::vector<Machine> all;
  for (int i = 0; i < 8; ++i) all.push_back(make_machine(i));
  std::printf("%8s %8s %6s %12s\n", "delay", "machines", "ranks", "vote");
  for (const int delay : {0, 200, 1000}) {
    for (const int number : {2, 3, 4, 8}) {
      const std::vector<Machine> machines(all.begin(), all.begin() + number);
      for (const int each : {1, 2}) {
        const Switch cables(machines, microseconds(delay));
        const double seconds = seconds_of_vote(machines, each, rounds);
        std::printf("%5.1f ms %8d %6d %9.2f ms\n", delay / 1e3, number,
                    number * each, seconds * 1e3);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  try {
    headroom::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 100);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
