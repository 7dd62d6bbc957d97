// Courier: a thread that delivers a run's news to one server and retries until
// they arrive. The run waits for it only at its end, with a time limit.
//
// It prints one line when the server stops answering and one when it is back.
//
// Threads: a Courier is used from one thread. Its own thread may be blocked
// where it cannot be ended (looking up a host name). It is then left running
// until the process ends, and so is everything it uses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace headroom::notify {

// Thrown when a server did not accept a message.
class Undelivered : public std::runtime_error {
 public:
  explicit Undelivered(const std::string& why, int http_status = 0,
                       std::chrono::seconds retry_after = {})
      : std::runtime_error(why),
        http_status_(http_status),
        retry_after_(retry_after) {}

  // The HTTP status; 0 if there was no answer, or if it does not matter.
  int http_status() const { return http_status_; }

  // How long the server asks the client to wait; 0 if it did not ask.
  std::chrono::seconds retry_after() const { return retry_after_; }

 private:
  int http_status_;
  std::chrono::seconds retry_after_;
};

struct WebAnswer;

// Throws Undelivered with the server's message unless the answer is good.
void require_good(const WebAnswer& answer);

struct RunEnd {
  int exit_code = 0;
  std::string reason;
};

// The messages for one server.
class Delivery {
 public:
  virtual ~Delivery() = default;

  // Sends what is ready, each request within `limit`. `end` is nullptr while
  // the run goes on. A later call never repeats what has arrived. Returns lines
  // to print. Throws Undelivered.
  virtual std::vector<std::string> advance(const RunEnd* end,
                                           std::chrono::milliseconds limit) = 0;
  // Names what has not arrived yet; "" if everything has.
  virtual std::string left(const RunEnd* end) const = 0;
  // Aborts an advance() that was called without an end and may take long: its
  // current request and the ones that would follow. Any thread may call it.
  virtual void cut() = 0;
  // Aborts the current request and refuses later ones. Any thread may call it.
  virtual void stop() = 0;
};

class Courier {
 public:
  using Say = std::function<void(const std::string&)>;

  // `server` is its name in messages: "MLflow at https://ml.example".
  Courier(std::unique_ptr<Delivery> delivery, std::string server, Say say);
  ~Courier();  // drops what has not arrived
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Call it when the run has ended: the rest may be delivered until `deadline`.
  // Aborts a running upload, because it may take minutes.
  void end(const RunEnd& end, std::chrono::steady_clock::time_point deadline);
  // Waits at most `limit`; returns whether everything has arrived.
  bool wait(std::chrono::milliseconds limit);
  // Stops the delivery and prints what has not arrived.
  void give_up();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace headroom::notify
