#include "deploy/notify/delivery.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The least time between two requests.
constexpr seconds kInterval(1);
constexpr seconds kLongestPause(60);
// Some servers take long to answer.
constexpr milliseconds kRequestLimit = seconds(60);

volatile std::sig_atomic_t is_terminated = 0;

class Service {
 public:
  explicit Service(std::unique_ptr<Delivery> delivery)
      : delivery_(std::move(delivery)) {}

  void run() {
    while (!is_terminated) {
      read_lines();
      const Clock::time_point now = Clock::now();
      if (is_closed_ && !deadline_) return;  // the run's process is gone
      if (deadline_ && (delivery_->left().empty() || now >= *deadline_)) break;
      if (now >= next_try_ && delivery_->is_due()) try_to_send();
    }
    read_lines();  // also takes the lines that arrived during the last request
    const std::string left = delivery_->left();
    if (left.empty()) return;
    say("warning: " + delivery_->server() + " has not got " + left +
        (why_away_.empty() ? "" : " (" + why_away_ + ")"));
  }

 private:
  // Takes all lines that have arrived; waits up to 100 ms for lines if no
  // request can be sent.
  void read_lines() {
    const bool can_send = Clock::now() >= next_try_ && delivery_->is_due();
    pollfd input{is_closed_ ? -1 : STDIN_FILENO, POLLIN, 0};
    for (int patience = can_send ? 0 : 100; poll(&input, 1, patience) > 0;
         patience = 0) {
      char buffer[65536];
      const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
      if (count <= 0) {
        is_closed_ = true;
        return;
      }
      text_.append(buffer, static_cast<size_t>(count));
      for (size_t end = text_.find('\n'); end != std::string::npos;
           end = text_.find('\n')) {
        take_line(records::shallow_json(text_.substr(0, end)));
        text_.erase(0, end + 1);
      }
    }
  }

  void take_line(const nlohmann::ordered_json& line) {
    if (!line.is_object()) return;
    if (records::text_member(line, "event") == "run_end") {
      deadline_ = Clock::now() + delivery_->time_at_end();
      next_try_ = {};
    }
    delivery_->take(line);
  }

  void try_to_send() {
    const milliseconds limit = deadline_
                                   ? std::chrono::duration_cast<milliseconds>(
                                         *deadline_ - Clock::now())
                                   : kRequestLimit;
    try {
      delivery_->send([&](WebRequest request, const WebAddress& address) {
        request.limit = std::min(request.limit, limit);
        post(address, request, [] { return is_terminated != 0; });
      });
      note_success();
    } catch (const Undelivered& failure) {
      note_failure(failure);
    }
  }

  void note_success() {
    if (std::exchange(is_away_, false)) say(delivery_->server() + " is back");
    why_away_.clear();
    failures_ = 0;
    // After the run's end the remaining messages are sent without pauses.
    next_try_ = deadline_ ? Clock::time_point() : Clock::now() + kInterval;
  }

  void note_failure(const Undelivered& failure) {
    why_away_ = short_line(failure.what(), 300);
    if (!std::exchange(is_away_, true) && !is_terminated) {
      say("warning: " + delivery_->server() +
          " does not answer as it should (" + why_away_ +
          "): training goes on, and what it misses follows");
    }
    const int doublings = std::min(failures_++, 6);
    const seconds pause = std::clamp(
        std::max(kInterval * (1 << doublings), failure.retry_after()),
        kInterval, kLongestPause);
    // At the end there is no time for longer pauses.
    next_try_ = Clock::now() + (deadline_ ? kInterval : pause);
  }

  const std::unique_ptr<Delivery> delivery_;
  std::string text_;  // the beginning of an incomplete line
  bool is_closed_ = false;
  std::optional<Clock::time_point> deadline_;  // set once the run has ended
  Clock::time_point next_try_{};
  bool is_away_ = false;
  int failures_ = 0;
  std::string why_away_;
};

}  // namespace

void say(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}

int notify(const std::string& service) {
  if (service != "webhook" && service != "trainjob") {
    throw Error("command line", "headroom notify is part of headroom train",
                "see --webhook and --on-event in headroom train --help");
  }
  struct sigaction action {};
  action.sa_handler = [](int) { is_terminated = 1; };
  sigaction(SIGTERM, &action, nullptr);
  Service(service == "webhook" ? make_webhook() : make_trainjob()).run();
  return 0;
}

}  // namespace headroom::notify
