#include "worker/run/card_fault.h"

#include <algorithm>
#include <chrono>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/run/training_run.h"
#include "worker/step/weight_check.h"

namespace headroom::run {

std::optional<std::string> error_words(const c10::AcceleratorError& error) {
  constexpr int kNoMemory = 2;  // cudaErrorMemoryAllocation
  if (error.get_error_code() == kNoMemory) return std::nullopt;
  // Drops LibTorch's further lines on how to debug kernels.
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

CardRecord card_record(const control::Assignment& assignment) {
  return {.uuid = assignment.card_uuid,
          .left_out = assignment.left_out_cards,
          .was_listed = assignment.generation > 1};
}

Card card_of(const devices::DeviceInfo& info) {
  return {info.uuid, info.name, info.bus_address};
}

int usable_card(const devices::DeviceApi& api, int index,
                const CardRecord& record) {
  const int count = api.device_count();
  // If a card disappeared, the driver has renumbered the cards after it.
  if (!record.uuid.empty()) {
    int found = 0;
    while (found < count && api.describe(found).uuid != record.uuid) ++found;
    index = found;
  }
  if (index >= count) {
    throw CardUnusable({.kind = CardFault::Kind::kGone,
                        .card = {record.uuid, "", ""},
                        .words = "the driver lists " + counted(count, "card") +
                                 ", and not this one"});
  }
  const Card card = card_of(api.describe(index));
  if (std::ranges::find(record.left_out, card.uuid) != record.left_out.end()) {
    throw CardUnusable({.kind = CardFault::Kind::kLeftOut,
                        .card = card,
                        .words = "the run has left it out"});
  }
  return index;
}

std::optional<CardFault> card_fault_behind(
    const std::exception_ptr& failure,
    const std::optional<devices::ComputeDevice>& device, const Card& card) {
  std::optional<std::string> words;
  try {
    std::rethrow_exception(failure);
  } catch (const CardUnusable& error) {
    return error.fault();
  } catch (const step::WeightsDiffer& difference) {
    if (!difference.is_wrong()) return std::nullopt;
    const bool is_cpu = !device || device->is_cpu();
    return CardFault{
        .kind = is_cpu ? CardFault::Kind::kFailed : CardFault::Kind::kWrong,
        .card = is_cpu ? Card{"", "CPU", ""} : card,
        .words = difference.what()};
  } catch (const c10::AcceleratorError& error) {
    words = error_words(error);
  } catch (...) {  // then the driver is asked below
  }
  if (!device || device->is_cpu()) return std::nullopt;
  if (auto now = device->api()->failure(device->device().index())) {
    words = std::move(now);
  }
  if (!words) return std::nullopt;
  return CardFault{
      .kind = CardFault::Kind::kFailed, .card = card, .words = *words};
}

int end_for_card(control::CoordinatorClient& client, const CardFault& fault,
                 int64_t committed_steps, const TrainingRun* training) {
  const std::string text =
      "[device] " + to_string(fault.card) + ": " + fault.words;
  log::warn(text +
            ": this process ends; the coordinator says whether another "
            "is started on the card");
  control::WorkerFailure failure{
      .exit_code = static_cast<int>(ExitCode::kResource),
      .message = text,
      .committed_steps = committed_steps,
      .card_fault = fault};
  if (training != nullptr) {
    failure.checkpoint_steps = training->checkpoint_steps();
  }
  try {
    client.report_failure(failure);
  } catch (const Error& error) {
    log::warn(error.what());
  }
  return kCardExitCode;
}

CardWatch::CardWatch(const devices::ComputeDevice& device)
    : thread_([this, &api = *device.api(), index = device.device().index()] {
        constexpr std::chrono::milliseconds kLook(250);
        std::unique_lock lock(mutex_);
        while (!ends_.wait_for(lock, kLook, [this] { return is_ending_; })) {
          if (PeerWait::is_waiting() && api.failure(index)) {
            AbortableWait::abort_all();
          }
        }
      }) {}

CardWatch::~CardWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

}  // namespace headroom::run
