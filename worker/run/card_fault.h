// A worker's own card: whether the worker may use the card, and whether the
// card still works after a step has failed.
//
// After a hardware error, or a kernel that traps, a card refuses every further
// call of the process, and the data of the process on the card is lost. So the
// process ends (exit code 6) and its agent starts another process, as after a
// SIGKILL.
#pragma once

#include <c10/util/Exception.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/card.h"
#include "parallel/devices/compute_device.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

class TrainingRun;

// Thrown if the process cannot use its card from the start.
class CardUnusable : public std::exception {
 public:
  explicit CardUnusable(CardFault fault)
      : fault_(std::move(fault)), text_(to_string(fault_.card)) {
    text_ += ": " + fault_.words;
  }
  const char* what() const noexcept override { return text_.c_str(); }
  const CardFault& fault() const { return fault_; }

 private:
  CardFault fault_;
  std::string text_;
};

// Facts about cards that earlier processes of the run recorded.
struct CardRecord {
  std::string uuid = {};  // card of the replaced process; "" if unknown
  std::vector<std::string> left_out = {};  // UUIDs of cards not to use
  bool was_listed = false;  // the card was listed when the run began
};

// The driver's message in `error`; nullopt if the card's memory is full.
std::optional<std::string> error_words(const c10::AcceleratorError& error);

CardRecord card_record(const control::Assignment& assignment);

Card card_of(const devices::DeviceInfo& info);

// The index of the card to use; `index` is the index in --device. Throws
// CardUnusable if that card is in record.left_out or has disappeared since the
// run began. REQUIRES: index < api.device_count(), unless record.was_listed.
int usable_card(const devices::DeviceApi& api, int index,
                const CardRecord& record);

// The fault of this process's card that explains `failure`; nullopt if the card
// works. On the CPU, the fault of the processor if it computes wrong. `device`:
// not set if no device was chosen yet.
std::optional<CardFault> card_fault_behind(
    const std::exception_ptr& failure,
    const std::optional<devices::ComputeDevice>& device, const Card& card);

// Reports the fault. Returns the exit code; the process should end by
// std::_Exit. `training`: null if no training has begun.
int end_for_card(control::CoordinatorClient& client, const CardFault& fault,
                 int64_t committed_steps, const TrainingRun* training);

// While a CardWatch exists, a failing card wakes the threads of this process
// that wait for peers, because the peers wait for the failed card.
class CardWatch {
 public:
  explicit CardWatch(const devices::ComputeDevice& device);
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace headroom::run
