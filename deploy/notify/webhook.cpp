#include "deploy/notify/webhook.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/event_kinds.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

using Clock = std::chrono::steady_clock;

// Slack refuses longer texts.
constexpr size_t kLongestReason = 2000;

// Whether the server would refuse the same message again. Not so for wrong
// credentials, which may be corrected, and for a busy server.
bool is_for_good(int status) {
  constexpr std::array kPassing = {401, 403, 408, 429};
  return status >= 400 && status < 500 &&
         std::ranges::find(kPassing, status) == kPassing.end();
}

// Repeated attempts change nothing that a reader would act on.
bool is_news(const records::EventLine& event) {
  if (event.kind == to_string(EventKind::kLossOfProcess)) return true;
  return event.kind == to_string(EventKind::kOutOfMemory) &&
         !event.change.ends_with("again");
}

}  // namespace

Webhook::Webhook(const WebAddress& address, std::string run_name,
                 records::EventReader events)
    : client_(address),
      run_name_(std::move(run_name)),
      events_(std::move(events)) {}

std::string Webhook::message(const records::EventLine& event) const {
  const std::string reason = short_line(event.reason, kLongestReason);
  const nlohmann::ordered_json body = {
      {"event", event.kind},
      {"run", valid_utf8(run_name_)},
      {"step", event.step},
      {"reason", reason},
      {"time", event.time},
      {"text",
       cat(valid_utf8(run_name_), ", step ", event.step, ": ", reason)}};
  return body.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

void Webhook::take_events() {
  for (const records::EventLine& event : events_.take()) {
    newest_step_ = std::max(newest_step_, event.step);
    if (!is_news(event)) continue;
    if (queue_.size() < kLongestQueue) {
      queue_.push_back(message(event));
    } else {
      ++dropped_;
    }
  }
}

std::vector<std::string> Webhook::advance(const RunEnd* end,
                                          std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  take_events();
  if (end != nullptr && !std::exchange(has_end_, true)) {
    queue_.push_back(message({.kind = to_string(EventKind::kRunOver),
                              .step = newest_step_,
                              .reason = end->reason,
                              .time = utc_now(),
                              .epoch = {},
                              .generation = {},
                              .change = ""}));
  }
  if (!queue_.empty()) send_oldest(limit);
  while (end != nullptr && !queue_.empty() && Clock::now() < deadline) {
    send_oldest(std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now()));
  }
  if (has_end_ && queue_.empty()) {
    if (dropped_ > 0) {
      lines_.push_back("webhook: " + counted(dropped_, "message") +
                       " more than the queue holds were dropped");
    }
    if (refused_ > 1) {
      lines_.push_back("webhook: " + counted(refused_, "message") +
                       " were refused and dropped");
    }
  }
  return std::exchange(lines_, {});
}

void Webhook::send_oldest(std::chrono::milliseconds limit) {
  const WebAnswer answer =
      client_.send({.path = "", .body = queue_.front()}, limit);
  try {
    require_good(answer);
  } catch (const Undelivered& refusal) {
    if (!is_for_good(answer.status)) throw;
    if (refused_++ == 0) {
      lines_.push_back(
          "warning: the webhook refuses a message, which is "
          "dropped (" +
          std::string(refusal.what()) + "): look at the address of --webhook");
    }
  }
  queue_.pop_front();
}

std::string Webhook::left(const RunEnd* end) const {
  const int64_t waiting = static_cast<int64_t>(queue_.size()) + dropped_ +
                          refused_ + (end != nullptr && !has_end_ ? 1 : 0);
  if (queue_.empty() && (end == nullptr || has_end_)) return "";
  return counted(waiting, "message");
}

}  // namespace headroom::notify
