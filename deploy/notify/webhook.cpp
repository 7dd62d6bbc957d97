#include "deploy/notify/webhook.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/event_kinds.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

// Slack refuses longer ones.
constexpr size_t kLongestReason = 2000;

// Attempts that are merely repeated change nothing that anybody would look at.
bool is_news(const EventLine& event) {
  if (event.kind == to_string(EventKind::kLossOfProcess)) return true;
  return event.kind == to_string(EventKind::kOutOfMemory) &&
         !event.change.ends_with("again");
}

}  // namespace

Webhook::Webhook(const WebAddress& address, std::string run_name,
                 EventReader events)
    : client_(address),
      run_name_(std::move(run_name)),
      events_(std::move(events)) {}

std::string Webhook::message(const EventLine& event) const {
  const std::string reason = short_line(event.reason, kLongestReason);
  const nlohmann::ordered_json body = {
      {"event", event.kind},
      {"run", valid_utf8(run_name_)},
      {"step", event.step},
      {"reason", reason},
      {"time", event.time},
      {"text", valid_utf8(run_name_) + ", step " + std::to_string(event.step) +
                   ": " + reason}};
  return body.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

void Webhook::take_events() {
  for (const EventLine& event : events_.take()) {
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
  std::vector<std::string> lines;
  if (!queue_.empty()) {
    const WebAnswer answer =
        client_.send({.path = "", .body = queue_.front()}, limit);
    require_good(answer);
    queue_.pop_front();
  }
  if (has_end_ && queue_.empty() && dropped_ > 0) {
    lines.push_back("webhook: " + counted(dropped_, "message") +
                    " more than the queue holds were dropped");
  }
  return lines;
}

std::string Webhook::left(const RunEnd* end) const {
  const int64_t waiting = static_cast<int64_t>(queue_.size()) + dropped_ +
                          (end != nullptr && !has_end_ ? 1 : 0);
  if (queue_.empty() && (end == nullptr || has_end_)) return "";
  return counted(waiting, "message");
}

}  // namespace headroom::notify
