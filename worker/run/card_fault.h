// A worker's own card: whether it may use it, and whether it still works after
// a step has failed.
//
// An error of the hardware, or a kernel that traps, makes a card refuse every
// further call of the process, and what the process holds there is lost. So the
// process ends (exit code 6) and its agent starts another, as after a SIGKILL.
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

// The run's knowledge of cards from before this process.
struct CardRecord {
  std::string uuid = {};  // the predecessor's card; "": unknown
  std::vector<std::string> left_out = {};  // UUIDs
  bool was_listed = false;  // a missing card was there when the run began
};

// The driver's message in an error of a call; nothing if the card is full.
std::optional<std::string> error_words(const c10::AcceleratorError& error);

CardRecord card_record(const control::Assignment& assignment);

Card card_of(const devices::DeviceInfo& info);

// The device of that place; `index` is what --device says. Throws CardUnusable
// where that card is left out, or was there and is not listed any more.
// REQUIRES: index < api.device_count(), unless record.was_listed.
int usable_card(const devices::DeviceApi& api, int index,
                const CardRecord& record);

// The fault of this process's card that explains `failure`; nothing where the
// card works. `device`: none where it was not chosen yet.
std::optional<CardFault> card_fault_behind(
    const std::exception_ptr& failure,
    const std::optional<devices::ComputeDevice>& device, const Card& card);

// Reports the fault. Returns the exit code; the process should end by
// std::_Exit. `training`: null where none has begun.
int end_for_card(control::CoordinatorClient& client, const CardFault& fault,
                 int64_t committed_steps, const TrainingRun* training);

// While it exists, a card that fails wakes the threads of this process that
// wait for peers: those peers wait for the failed card.
class CardWatch {
 public:
  explicit CardWatch(const devices::ComputeDevice& device);
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;  // guarded
  std::thread thread_;
};

}  // namespace headroom::run
