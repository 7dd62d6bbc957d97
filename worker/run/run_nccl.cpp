#include "worker/run/run_nccl.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "configs/cluster_catalogue.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/gather.h"
#include "parallel/collectives/network_measurement.h"
#include "parallel/network/nccl_environment.h"
#include "parallel/network/network_interfaces.h"
#include "parallel/plan/plan_json.h"

namespace headroom::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFirstBytes = int64_t{4} << 20, kBytes = int64_t{64} << 20;
constexpr int kSums = 3;
// If large all-reduces would take longer, only a small one is measured.
constexpr double kLongestSeconds = 1;
// A device with less free memory is not measured: the run needs the memory
// more.
constexpr int64_t kRoom = int64_t{1} << 30;
constexpr double kSlowShare = 0.1;

constexpr const char* kCauses =
    "usual causes: the image lacks libibverbs, or the aws-ofi-nccl plugin for "
    "EFA; NCCL_SOCKET_IFNAME or NCCL_IB_HCA names a slow device; the security "
    "group or fabric blocks it; NCCL_DEBUG=INFO says what NCCL has found";
constexpr const char* kCausesInside =
    "usual causes: cards without NVLink or peer access, which nvidia-smi topo "
    "-m shows; NCCL_P2P_DISABLE; a virtual machine with ACS on";

// Seconds that the slowest rank needs for `times` all-reduces.
double seconds_of_sums(collectives::Communicator& ranks,
                       const at::Tensor& tensor, int times) {
  ranks.synchronize();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < times; ++i) ranks.all_reduce(tensor);
  ranks.synchronize();
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  ranks.all_reduce(at::from_blob(&seconds, {1}, at::kDouble),
                   collectives::ReduceOp::kMax);
  return std::max(seconds, 1e-9);
}

double rate_of(collectives::Communicator& ranks, c10::Device device) {
  const auto size = static_cast<double>(ranks.size());
  const auto rate = [&](int64_t bytes, int times, double seconds) {
    return 2 * (size - 1) / size * static_cast<double>(bytes) * times / seconds;
  };
  const at::Tensor tensor = at::zeros({kBytes / 4}, at::TensorOptions(device));
  const at::Tensor small = tensor.narrow(0, 0, kFirstBytes / 4);
  seconds_of_sums(ranks, small, 1);  // the first one also connects the ranks
  const double first = seconds_of_sums(ranks, small, 1);
  if (first * kSums * (kBytes / kFirstBytes) > kLongestSeconds) {
    return rate(kFirstBytes, 1, first);
  }
  return rate(kBytes, kSums, seconds_of_sums(ranks, tensor, kSums));
}

bool all_have_room(collectives::Communicator& host,
                   const devices::ComputeDevice& device) {
  return collectives::all_agree(
      host, device.api()->free_bytes(device.device().index()) >= kRoom);
}

// The rate between the ranks of one machine, on the slowest machine. The
// connections that the measurement makes are closed on return.
double rate_inside(collectives::Communicator& host, int machine,
                   const devices::ComputeDevice& device,
                   const devices::DeviceCommunicatorOptions& options) {
  auto group = host.split(machine, host.rank());
  double slowness = 0;  // seconds per byte; 0 on a machine with one rank
  if (group->size() > 1) {
    auto devices = device.api()->connect_ranks(*group, options);
    const auto ranks = collectives::make_device_host_communicator(
        std::move(group), std::move(devices));
    slowness = 1 / rate_of(*ranks, device.device());
  }
  host.all_reduce(at::from_blob(&slowness, {1}, at::kDouble),
                  collectives::ReduceOp::kMax);
  return slowness > 0 ? 1 / slowness : 0;
}

std::string gigabytes(double bytes_per_second) {
  const double rate = bytes_per_second / 1e9;
  return (rate < 10 ? significant_text(rate, 2) : fixed_text(rate, 0)) +
         " GB/s";
}

std::string slow_text(const char* where, double rate, double expected,
                      const std::string& machine) {
  if (rate <= 0 || expected <= 0 || rate >= kSlowShare * expected) return "";
  return gigabytes(rate) + " " + where + ", where " + machine + " has " +
         gigabytes(expected);
}

}  // namespace

std::string nccl_rates_text(const NcclRates& rates) {
  std::string text = "NCCL: ";
  if (rates.machines > 1) {
    text += rates.transport + ", " + gigabytes(rates.between_machines) +
            " between machines";
    if (rates.inside_machine > 0) {
      text += ", " + gigabytes(rates.inside_machine) + " inside";
    }
    return text;
  }
  return text + gigabytes(rates.inside_machine) + " between the cards of " +
         "this machine";
}

CataloguedRates catalogued_rates(const std::string& card, int64_t cards) {
  CataloguedRates slowest;
  for (const configs::Instance& one : configs::instance_catalogue()) {
    // The driver appends details to the name, as in "NVIDIA H100 80GB HBM3".
    if (!(card + " ").starts_with(one.gpu + " ") || one.gpus != cards) continue;
    // The catalogue's rate of a link counts both directions.
    const double inside =
        static_cast<double>(one.link_gigabytes_per_second) * 1e9 / 2;
    const double between =
        static_cast<double>(one.network_gigabits_per_second) * 1e9 / 8;
    if (!slowest.machine.empty() && between >= slowest.between_machines) {
      continue;
    }
    slowest = {one.provider + " " + one.name, between, inside};
  }
  return slowest;
}

std::string slow_nccl_warning(const NcclRates& rates,
                              const CataloguedRates& expected) {
  std::string slow = slow_text("between machines", rates.between_machines,
                               expected.between_machines, expected.machine);
  const bool is_network = !slow.empty();
  if (!is_network) {
    slow = slow_text("inside the machine", rates.inside_machine,
                     expected.inside_machine, expected.machine);
  }
  if (slow.empty()) return "";
  return "NCCL sums at " + slow + ": " +
         (is_network ? rates.transport + " is used; " + kCauses
                     : kCausesInside) +
         "; --require-rate refuses such a run";
}

void require_rate(const NcclRates& rates, double gigabytes_per_second) {
  const bool has_network = rates.machines > 1;
  const double rate =
      has_network ? rates.between_machines : rates.inside_machine;
  if (gigabytes_per_second <= 0 || rate >= 1e9 * gigabytes_per_second) return;
  throw Error("network",
              "NCCL sums at " + gigabytes(rate) +
                  (has_network ? " between machines over " + rates.transport
                               : std::string(" inside the machine")) +
                  ", and --require-rate asks for " +
                  gigabytes(1e9 * gigabytes_per_second),
              std::string(has_network ? kCauses : kCausesInside) +
                  "; to train at this rate, leave --require-rate out");
}

void check_nccl_environment() {
  const char* const value = std::getenv("NCCL_SOCKET_IFNAME");
  if (value == nullptr) return;
  const std::string fault = socket_interface_fault(value, interface_names());
  if (fault.empty()) return;
  throw Error("nccl", fault,
              "name one of " + interfaces_text(network_interfaces()) +
                  ", or leave it out");
}

void measure_nccl_at_start(const control::Assignment& assignment,
                           const configs::RunConfig& config,
                           const devices::ComputeDevice& device,
                           const devices::DeviceCommunicatorOptions& options,
                           control::CoordinatorClient& client,
                           collectives::Communicator& host,
                           collectives::Communicator& ranks,
                           std::optional<plan::NetworkRates>& network) {
  const bool is_required = config.require_rate > 0 && !assignment.keeps_state;
  if (config.command != "train" ||
      (assignment.generation != 1 && !is_required)) {
    return;
  }
  device.memory().release_caches();
  if (!all_have_room(host, device)) {
    if (!is_required) return;
    throw Error("network",
                "--require-rate: a card has less than " + format_bytes(kRoom) +
                    " free, and no rate can be measured",
                "see what takes it (nvidia-smi), or leave --require-rate out");
  }
  // rate_inside() identifies a machine by the first rank on it. `first` becomes
  // the first rank on this rank's machine.
  const std::vector<int64_t> machine_of_rank =
      collectives::tell_all(host, collectives::this_machine());
  std::map<int64_t, int64_t> cards;
  for (const int64_t machine : machine_of_rank) ++cards[machine];
  const auto first = std::ranges::find(
      machine_of_rank, machine_of_rank[static_cast<size_t>(host.rank())]);

  NcclRates rates;
  rates.machines = std::ssize(cards);
  for (const auto& [machine, number] : cards) {
    rates.cards_of_machine = std::max(rates.cards_of_machine, number);
  }
  const double all = rate_of(ranks, device.device());
  if (rates.machines == 1) {
    rates.inside_machine = all;
  } else {
    rates.between_machines = all;
    rates.inside_machine =
        rate_inside(host, static_cast<int>(first - machine_of_rank.begin()),
                    device, options);
  }
  device.memory().release_caches();
  rates.transport = collectives::broadcast_bytes(host, nccl_transport(), 0);

  std::string detail;
  if (network && rates.machines > 1) {
    network->interface = rates.transport;
    network->slowest_bytes_per_second = network->fastest_bytes_per_second =
        rates.between_machines;
    network->is_sample = false;
    detail = plan::network_object(*network).dump();
  }
  if (assignment.rank == 0) {
    const auto report = [&](const std::string& reason, bool is_warning) {
      client.report_event({.event = EventKind::kNetwork,
                           .step = 0,
                           .rank = -1,
                           .reason = reason,
                           .detail_json = is_warning ? "" : detail,
                           .warning = is_warning});
    };
    report(nccl_rates_text(rates), false);
    const std::string card =
        device.api()->describe(device.device().index()).name;
    const std::string warning = slow_nccl_warning(
        rates, catalogued_rates(card, rates.cards_of_machine));
    if (!warning.empty()) report(warning, true);
  }
  require_rate(rates, config.require_rate);
}

}  // namespace headroom::run
