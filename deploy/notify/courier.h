// Courier: a thread that brings news of a run to one server, and tries again
// until they are there. The run waits for it at its end alone, and not longer
// than it is told to.
//
// One line says that the server is away, and one that it is back.
//
// Threads: a Courier is used from one. Its own thread may be stuck where it
// cannot be ended (the look-up of a name); it is then left to the process's
// end, with all that it uses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace headroom::notify {

// A server did not take what it was sent.
class Undelivered : public std::runtime_error {
 public:
  explicit Undelivered(const std::string& why, int http_status = 0,
                       std::chrono::seconds retry_after = {})
      : std::runtime_error(why),
        http_status_(http_status),
        retry_after_(retry_after) {}

  // What the server answered; 0 where that says nothing.
  int http_status() const { return http_status_; }

  // How long the server wants to be left alone; 0 if it did not say.
  std::chrono::seconds retry_after() const { return retry_after_; }

 private:
  int http_status_;
  std::chrono::seconds retry_after_;
};

struct WebAnswer;

// Throws Undelivered, with what the server says, unless the answer is good.
void require_good(const WebAnswer& answer);

struct RunEnd {
  int exit_code = 0;
  std::string reason;
};

// What is brought to one server.
class Delivery {
 public:
  virtual ~Delivery() = default;

  // Sends what is there to be sent, each request within `limit`; `end` is null
  // while the run goes on. What arrived is not sent again by the next call.
  // Returns lines to say. Throws Undelivered.
  virtual std::vector<std::string> advance(const RunEnd* end,
                                           std::chrono::milliseconds limit) = 0;
  // Names what has not arrived; "" for nothing.
  virtual std::string left(const RunEnd* end) const = 0;
  // Ends an advance() that knows of no end yet, where it may take long: the
  // request that is under way, and those that would follow. Any thread may call
  // it.
  virtual void cut() = 0;
  // Ends the request that is under way, and refuses later ones. Any thread may
  // call it.
  virtual void stop() = 0;
};

class Courier {
 public:
  using Say = std::function<void(const std::string&)>;

  // `server` is its name in lines: "MLflow at https://ml.example".
  Courier(std::unique_ptr<Delivery> delivery, std::string server, Say say);
  ~Courier();  // leaves undone what has not arrived
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // The run has ended: what is left has until `deadline`. An upload that is
  // under way is cut, for it may take minutes.
  void end(const RunEnd& end, std::chrono::steady_clock::time_point deadline);
  // Whether all has arrived; waits for it so long.
  bool wait(std::chrono::milliseconds limit);
  // Gives up, and says what is left.
  void give_up();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace headroom::notify
