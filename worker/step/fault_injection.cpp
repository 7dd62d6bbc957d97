#include "worker/step/fault_injection.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"

namespace headroom::step {
namespace {

thread_local bool ballast_fits = true;  // whether the newest ballast fits

// In these phases the host allocates, not the device.
bool is_on_the_host(configs::Fault::Phase phase) {
  return phase == configs::Fault::Phase::kLoader ||
         phase == configs::Fault::Phase::kCheckpoint;
}

devices::DeviceMemory& memory_of(const devices::ComputeDevice& device) {
  return device.api()->memory(device.device().index());
}

// Pauses, hangs or kills this process; returns only from a pause.
void stop_here(const configs::Fault& fault) {
  log::warn("--inject " + configs::to_string(fault));
  if (fault.kind == configs::Fault::Kind::kKill) std::raise(SIGKILL);
  if (fault.kind == configs::Fault::Kind::kPause) {
    std::this_thread::sleep_for(std::chrono::seconds(fault.seconds));
    return;
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

void require_device(const configs::Fault& fault,
                    const devices::ComputeDevice& device,
                    bool has_device_collectives) {
  using Kind = configs::Fault::Kind;
  const std::string what = "--inject " + configs::to_string(fault) + ": ";
  if (fault.kind == Kind::kSlow && !device.is_cpu()) {
    throw Error("inject", what + "a card cannot be made slower",
                "leave out --device");
  }
  if (fault.kind != Kind::kDeviceError) return;
  if (device.is_cpu()) {
    throw Error("inject", what + "the run is on the CPU, which has no card",
                "name a card with --device");
  }
  if (fault.phase == configs::Fault::Phase::kCollective &&
      !has_device_collectives) {
    throw Error("inject", what + "the ranks sum nothing over NCCL",
                "use --backend nccl with a layout of data=2 or spatial=2 or "
                "more, or another phase");
  }
}

}  // namespace

std::string describe(const FaultReport& report) {
  const std::string what = configs::to_string(report.fault);
  if (report.fired) return what;
  if (report.fault.kind == configs::Fault::Kind::kBallast) {
    return what + ": there is no room for it";
  }
  return cat(what, ": not reached, ", report.allocations, " allocations");
}

FaultInjection::FaultInjection(std::vector<configs::Fault> faults,
                               const devices::ComputeDevice& device, int rank,
                               int64_t first_step, bool has_device_collectives)
    : device_(device) {
  for (configs::Fault& fault : faults) {
    if (first_step < 0) require_device(fault, device, has_device_collectives);
    if (fault.rank != rank) continue;
    const bool has_happened =
        fault.happens_to_a_worker() && fault.step <= first_step;
    if (!has_happened) faults_.push_back(fault);
  }
}

std::optional<configs::Fault>& FaultInjection::armed() {
  thread_local std::optional<configs::Fault> fault;
  return fault;
}

void FaultInjection::begin(configs::Fault::Phase phase, int64_t step) {
  using Phase = configs::Fault::Phase;
  if (phase == Phase::kStep) strike(Phase::kCollective, step);
  {
    const std::lock_guard lock(mutex_);
    const auto next =
        std::ranges::find_if(faults_, [&](const configs::Fault& fault) {
          return fault.phase == phase && fault.step == step;
        });
    if (next == faults_.end()) return;
    armed() = *next;
    faults_.erase(next);
  }
  if (armed()->strikes()) {
    strike_with(*std::exchange(armed(), std::nullopt));
    return;
  }
  if (armed()->kind == configs::Fault::Kind::kSlow) {
    slower_by_percent_ = armed()->percent;
  } else if (armed()->kind == configs::Fault::Kind::kOutOfMemory) {
    fail_allocation(armed()->phase, armed()->allocation);
  } else if (armed()->kind == configs::Fault::Kind::kBallast) {
    ballast_fits = true;
    try {
      ballasts_.push_back(
          at::empty({armed()->bytes}, device_.options(at::kByte)));
    } catch (const c10::OutOfMemoryError&) {
      device_.memory().take_last_refusal();
      ballast_fits = false;
    }
  }
}

void FaultInjection::strike(configs::Fault::Phase phase, int64_t step) {
  using Kind = configs::Fault::Kind;
  std::optional<configs::Fault> fault;
  {
    const std::lock_guard lock(mutex_);
    const auto next =
        std::ranges::find_if(faults_, [&](const configs::Fault& one) {
          return (one.strikes() || one.kind == Kind::kOutOfMemory) &&
                 one.phase == phase && one.step == step;
        });
    if (next == faults_.end()) return;
    fault = *next;
    faults_.erase(next);
  }
  if (fault->kind == Kind::kOutOfMemory) {
    armed() = fault;
    return fail_allocation(phase, fault->allocation);
  }
  strike_with(*fault);
}

void FaultInjection::strike_with(const configs::Fault& fault) const {
  if (fault.stops_the_worker()) return stop_here(fault);
  using BreakIn = devices::DeviceApi::BreakIn;
  log::warn("--inject " + configs::to_string(fault));
  device_.api()->break_device(device_.device().index(),
                              fault.phase == configs::Fault::Phase::kCollective
                                  ? BreakIn::kNextCollective
                                  : BreakIn::kCurrentStream);
}

std::optional<FaultReport> FaultInjection::end() {
  const std::optional<configs::Fault> fault =
      std::exchange(armed(), std::nullopt);
  if (!fault) return std::nullopt;
  FaultReport report{.fault = *fault, .fired = true};
  if (fault->kind == configs::Fault::Kind::kOutOfMemory) {
    const int64_t left = pending_failure(fault->phase);
    fail_allocation(fault->phase, 0);
    report.fired = left == 0;
    report.allocations = fault->allocation - left;
  } else if (fault->kind == configs::Fault::Kind::kBallast) {
    report.fired = ballast_fits;
  }
  return report;
}

void FaultInjection::interrupt() {
  const std::optional<configs::Fault> fault =
      std::exchange(armed(), std::nullopt);
  if (!fault || fault->kind == configs::Fault::Kind::kBallast) return;
  if (fault->kind == configs::Fault::Kind::kOutOfMemory) {
    fail_allocation(fault->phase, 0);
  }
  const std::lock_guard lock(mutex_);
  faults_.insert(faults_.begin(), *fault);
}

void FaultInjection::fail_allocation(configs::Fault::Phase phase,
                                     int64_t n) const {
  if (device_.is_cpu() || is_on_the_host(phase)) {
    activations::CountingAllocator::fail_allocation(n);
  } else {
    memory_of(device_).fail_allocation(n);
  }
}

int64_t FaultInjection::pending_failure(configs::Fault::Phase phase) const {
  return device_.is_cpu() || is_on_the_host(phase)
             ? activations::CountingAllocator::pending_failure()
             : memory_of(device_).pending_failure();
}

void FaultInjection::corrupt(const at::Tensor& weights) const {
  constexpr int64_t kBit = 1 << 12;
  if (!armed() || armed()->kind != configs::Fault::Kind::kCorrupt) return;
  const at::NoGradGuard no_grad;
  weights.view(at::kInt).narrow(0, 0, 1).bitwise_xor_(kBit);
}

void FaultInjection::slow_down(double seconds) const {
  constexpr double kPercent = 0.01;
  const auto now = [] { return PeerWait::processor_time().in_all; };
  const auto end =
      now() + std::chrono::duration<double>(
                  seconds * kPercent * static_cast<double>(slower_by_percent_));
  while (now() < end) {
  }
}

bool FaultInjection::is_not_a_number() const {
  return armed() && armed()->kind == configs::Fault::Kind::kNotANumber;
}

}  // namespace headroom::step
