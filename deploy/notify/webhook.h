// Webhook: POSTs a JSON object to an address for each end, lost process and
// out-of-memory retry of a run, in order, at most one per second. After the
// run's end the rest is sent without pauses.
//
//   {"event": "loss_of_process", "run": "exp3", "step": 12, "reason": "...",
//    "time": "2026-11-21T08:23:00.123Z", "text": "exp3: ..."}
//
// A chat such as Slack shows "text". The queue is bounded: further messages are
// counted and dropped, but never the end. A message that the server refuses
// permanently is counted and dropped too.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "deploy/notify/courier.h"
#include "deploy/notify/web_client.h"
#include "deploy/records/run_lines.h"

namespace headroom::notify {

class Webhook : public Delivery {
 public:
  static constexpr size_t kLongestQueue = 100;

  // `events` must contain only this run's events.
  Webhook(const WebAddress& address, std::string run_name,
          records::EventReader events);

  std::vector<std::string> advance(const RunEnd* end,
                                   std::chrono::milliseconds limit) override;
  std::string left(const RunEnd* end) const override;
  // A message is short, and an aborted one might arrive twice.
  void cut() override {}
  void stop() override { client_.stop(); }

 private:
  void take_events();
  // REQUIRES: the queue is not empty.
  void send_oldest(std::chrono::milliseconds limit);
  std::string message(const records::EventLine& event) const;

  WebClient client_;
  std::string run_name_;
  records::EventReader events_;
  std::deque<std::string> queue_;  // bodies of requests
  int64_t dropped_ = 0;            // did not fit into the queue
  int64_t refused_ = 0;
  int64_t newest_step_ = 0;
  bool has_end_ = false;  // queued or sent
  std::vector<std::string> lines_;
};

}  // namespace headroom::notify
