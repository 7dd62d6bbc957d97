// FakeMetadata: a server on loopback with the part of Amazon's instance
// metadata service (IMDSv2) that a spot machine queries.
#pragma once

#include <httplib.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace headroom::testing {

class FakeMetadata {
 public:
  FakeMetadata() {
    server_.Put("/latest/api/token", [this](const httplib::Request& request,
                                            auto& answer) {
      note(request);
      const bool is_asked_well =
          request.has_header("X-aws-ec2-metadata-token-ttl-seconds");
      answer.status = is_asked_well ? 200 : 400;
      answer.set_content("token" + std::to_string(generation_), "text/plain");
    });
    server_.Get("/latest/meta-data/.*", [this](const httplib::Request& request,
                                               httplib::Response& answer) {
      note(request);
      const std::lock_guard lock(mutex_);
      const std::string& text =
          request.path.ends_with("instance-action") ? action_ : rebalance_;
      answer.status = 404;
      if (request.get_header_value("X-aws-ec2-metadata-token") !=
          "token" + std::to_string(generation_)) {
        answer.status = 401;
      } else if (!text.empty()) {
        answer.status = 200;
        answer.set_content(text, "application/json");
      }
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~FakeMetadata() {
    server_.stop();
    thread_.join();
  }
  FakeMetadata(const FakeMetadata&) = delete;
  FakeMetadata& operator=(const FakeMetadata&) = delete;

  std::string address() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  int port() const { return port_; }

  void take_away(const std::string& time) {
    const std::lock_guard lock(mutex_);
    action_ = R"({"action": "terminate", "time": ")" + time + "\"}";
  }
  void recommend_rebalance() {
    const std::lock_guard lock(mutex_);
    rebalance_ = R"({"noticeTime": "2026-11-26T12:00:00Z"})";
  }
  void end_tokens() { ++generation_; }
  size_t count_of(const std::string& method_and_path) const {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const std::string& each : asked_) count += each == method_and_path;
    return count;
  }

 private:
  void note(const httplib::Request& request) {
    const std::lock_guard lock(mutex_);
    asked_.push_back(request.method + " " + request.path);
  }

  httplib::Server server_;
  std::thread thread_;
  int port_ = 0;
  std::atomic<int> generation_{1};
  mutable std::mutex mutex_;  // guards the members below
  std::string action_, rebalance_;
  std::vector<std::string> asked_;
};

}  // namespace headroom::testing
