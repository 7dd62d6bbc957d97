// The webhook: POSTs a JSON object to an address for each end, lost process and
// out-of-memory retry of a run, in order, at most one per second.
//
//   {"event": "loss_of_process", "run": "exp3", "step": 12, "reason": "...",
//    "time": "2026-11-21T08:23:00.123Z", "text": "exp3: ..."}
//
// A chat such as Slack shows "text". The queue is bounded: the oldest messages
// are counted and dropped. A message that the server refuses permanently is
// counted and dropped too.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/notify/delivery.h"
#include "deploy/records/bounded_lines.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

using Json = nlohmann::ordered_json;
using records::text_member;

constexpr size_t kMostMessages = 100;
constexpr size_t kMostBytes = 256 << 10;
// Slack refuses longer texts.
constexpr size_t kLongestReason = 2000;

// Whether the server would refuse the same message again. Wrong credentials may
// be corrected, and a busy server may accept the message later.
bool is_for_good(int status) {
  constexpr std::array kPassing = {401, 403, 408, 429};
  return status >= 400 && status < 500 &&
         std::ranges::find(kPassing, status) == kPassing.end();
}

// Whether a message is sent for the event. A retry that is repeated in the same
// way sends no message, because a reader would not act on it.
bool is_news(const Json& event) {
  const std::string kind = text_member(event, "event");
  if (kind == to_string(EventKind::kLossOfProcess)) return true;
  return kind == to_string(EventKind::kOutOfMemory) &&
         !text_member(event, "change").ends_with("again");
}

class Webhook final : public Delivery {
 public:
  explicit Webhook(WebAddress address) : address_(std::move(address)) {}

  std::string server() const override {
    return "the webhook at " + address_.shown();
  }
  std::chrono::seconds time_at_end() const override {
    return std::chrono::seconds(10);
  }
  bool is_due() const override { return !queue_.empty(); }

  void take(const Json& line) override {
    const std::string kind = text_member(line, "event");
    if (kind == "run_start") run_ = text_member(line, "run");
    const auto found = line.find("step");
    const int64_t step = found != line.end() && found->is_number_integer()
                             ? found->get<int64_t>()
                             : 0;
    newest_step_ = std::max(newest_step_, step);
    if (kind == "run_end") {
      queue_.add(message(to_string(EventKind::kRunOver), newest_step_,
                         text_member(line, "reason"), utc_now()));
    } else if (is_news(line)) {
      queue_.add(message(kind, step, text_member(line, "reason"),
                         text_member(line, "time")));
    }
    has_end_ = has_end_ || kind == "run_end";
  }

  void send(const Post& post) override {
    try {
      post({.body = queue_.oldest(), .limit = std::chrono::hours(1)}, address_);
    } catch (const Undelivered& refusal) {
      if (!is_for_good(refusal.http_status())) throw;
      if (refused_++ == 0) {
        say(cat("warning: the webhook refuses a message, which is dropped (",
                refusal.what(), "): look at the address of --webhook"));
      }
    }
    queue_.take_oldest();
    if (!has_end_ || !queue_.empty()) return;
    if (queue_.dropped() > 0) {
      say("webhook: " + counted(queue_.dropped(), "message") +
          " more than the queue holds were dropped");
    }
    if (refused_ > 1) {
      say("webhook: " + counted(refused_, "message") +
          " were refused and dropped");
    }
  }

  std::string left() const override {
    if (queue_.empty()) return "";
    return counted(
        static_cast<int64_t>(queue_.size()) + queue_.dropped() + refused_,
        "message");
  }

 private:
  std::string message(const std::string& kind, int64_t step,
                      const std::string& why, const std::string& time) const {
    const std::string reason = short_line(why, kLongestReason);
    const std::string run = valid_utf8(run_);
    const Json body = {
        {"event", kind}, {"run", run},
        {"step", step},  {"reason", reason},
        {"time", time},  {"text", cat(run, ", step ", step, ": ", reason)}};
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const WebAddress address_;
  std::string run_;
  // The bodies of the requests that wait to be sent.
  records::BoundedLines queue_{kMostMessages, kMostBytes};
  int64_t refused_ = 0;
  int64_t newest_step_ = 0;
  bool has_end_ = false;
};

}  // namespace

std::unique_ptr<Delivery> make_webhook() {
  const char* const address = std::getenv(kWebhookVariable);
  return std::make_unique<Webhook>(
      parse_web_address(kWebhookVariable, address != nullptr ? address : ""));
}

}  // namespace headroom::notify
