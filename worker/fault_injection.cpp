#include "worker/fault_injection.h"

#include <utility>

#include "parallel/activations/counting_allocator.h"

namespace headroom {

FaultInjection::FaultInjection(std::vector<Fault> faults, int rank) {
  for (Fault& fault : faults) {
    if (fault.rank == rank) faults_.push_back(fault);
  }
}

void FaultInjection::begin_attempt(int64_t step) {
  for (armed_ = 0; armed_ < faults_.size(); ++armed_) {
    if (faults_[armed_].step != step) continue;
    is_armed_ = true;
    if (faults_[armed_].kind == Fault::Kind::kOutOfMemory) {
      CountingAllocator::instance().fail_allocation(faults_[armed_].allocation);
    }
    return;
  }
}

std::string FaultInjection::end_attempt() {
  if (!std::exchange(is_armed_, false)) return "";
  CountingAllocator& allocator = CountingAllocator::instance();
  const bool is_pending = faults_[armed_].kind == Fault::Kind::kOutOfMemory &&
                          allocator.is_failure_pending();
  allocator.fail_allocation(0);
  const std::string what = is_pending ? "" : to_string(faults_[armed_]);
  faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(armed_));
  return what;
}

bool FaultInjection::is_not_a_number() const {
  return is_armed_ && faults_[armed_].kind == Fault::Kind::kNotANumber;
}

}  // namespace headroom
