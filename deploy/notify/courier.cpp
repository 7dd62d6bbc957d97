#include "deploy/notify/courier.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "deploy/notify/web_client.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How often files are read; also the least time between webhook requests.
constexpr seconds kInterval(1);
constexpr seconds kLongestPause(60);
// Some servers are slow but answer.
constexpr seconds kRequestLimit(60);
// How long an aborted request may take to return.
constexpr milliseconds kLastWords(500);

// The message of an MLflow error; "" if the body is not MLflow's.
std::string message_in(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) return "";
  const auto message = json.find("message");
  return message != json.end() && message->is_string()
             ? ": " + short_line(message->get<std::string>(), 200)
             : "";
}

// Scheme and host only: the rest may be a secret.
std::string origin_of(const std::string& location) {
  const size_t scheme = location.find("://");
  if (scheme == std::string::npos) return "another page";
  return short_line(
      location.substr(0, location.find_first_of("/?#", scheme + 3)), 200);
}

}  // namespace

void require_good(const WebAnswer& answer) {
  if (answer.is_good()) return;
  if (answer.status == 0) throw Undelivered(answer.fault);
  const std::string code = cat("HTTP ", answer.status);
  if (answer.status >= 300 && answer.status < 400) {
    throw Undelivered(code + ", a redirect to " + origin_of(answer.location) +
                      ", which is not followed: give that address instead");
  }
  const bool is_denied = answer.status == 401 || answer.status == 403;
  throw Undelivered(
      code + (is_denied ? ", access denied" : "") + message_in(answer.body),
      answer.status, answer.retry_after);
}

struct Courier::State {
  std::unique_ptr<Delivery> delivery;
  std::string server;
  Say say;

  std::mutex mutex;  // guards the following members
  std::condition_variable changed;
  std::optional<RunEnd> run_end;
  Clock::time_point deadline{};
  bool is_stopped = false, is_done = false, has_left = false;
  bool is_away = false;
  int failures = 0;
  std::string why_away, left;

  void run();
  // Return the pause before the next try.
  seconds note_success();
  seconds note_failure(const Undelivered& failure);
};

void Courier::State::run() {
  std::unique_lock lock(mutex);
  while (!is_stopped) {
    const std::optional<RunEnd> end = run_end;
    const RunEnd* const known_end = end ? &*end : nullptr;
    left = delivery->left(known_end);
    const milliseconds limit =
        end ? std::chrono::duration_cast<milliseconds>(deadline - Clock::now())
            : milliseconds(kRequestLimit);
    lock.unlock();
    std::vector<std::string> lines;
    std::optional<Undelivered> failure;
    try {
      lines = delivery->advance(known_end, limit);
    } catch (const Undelivered& undelivered) {
      failure = undelivered;
    } catch (const std::exception& error) {
      failure = Undelivered(error.what());
    }
    lock.lock();
    if (is_stopped) break;
    left = delivery->left(known_end);
    // A request that the run's end aborted is no failure of the server.
    if (failure && run_end && !end) continue;
    const seconds pause = failure ? note_failure(*failure) : note_success();
    for (const std::string& line : lines) say(line);
    if (end && left.empty() && !failure) {
      is_done = true;
      break;
    }
    changed.wait_for(lock, pause, [&] {
      return is_stopped || (run_end.has_value() && !end);
    });
  }
  has_left = true;
  changed.notify_all();
}

seconds Courier::State::note_success() {
  if (std::exchange(is_away, false)) say(server + " is back");
  failures = 0;
  return kInterval;
}

seconds Courier::State::note_failure(const Undelivered& failure) {
  why_away = short_line(failure.what(), 300);
  if (!std::exchange(is_away, true)) {
    say("warning: " + server + " does not answer as it should (" + why_away +
        "): training goes on, and what it misses follows");
  }
  const int doublings = std::min(failures++, 6);
  // At the end there is no time for longer pauses.
  if (run_end) return kInterval;
  return std::clamp(
      std::max(kInterval * (1 << doublings), failure.retry_after()), kInterval,
      kLongestPause);
}

Courier::Courier(std::unique_ptr<Delivery> delivery, std::string server,
                 Say say)
    : state_(std::make_shared<State>()) {
  state_->delivery = std::move(delivery);
  state_->server = std::move(server);
  state_->say = std::move(say);
  std::thread([state = state_] { state->run(); }).detach();
}

Courier::~Courier() {
  std::unique_lock lock(state_->mutex);
  state_->is_stopped = true;
  state_->changed.notify_all();
  state_->delivery->stop();
  state_->changed.wait_for(lock, kLastWords, [&] { return state_->has_left; });
}

void Courier::end(const RunEnd& end, Clock::time_point deadline) {
  const std::lock_guard lock(state_->mutex);
  state_->deadline = deadline;
  state_->run_end = end;
  state_->delivery->cut();
  state_->changed.notify_all();
}

bool Courier::wait(milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [&] { return state_->is_done; });
  return state_->is_done;
}

void Courier::give_up() {
  std::unique_lock lock(state_->mutex);
  if (state_->is_done || state_->is_stopped) return;
  state_->is_stopped = true;
  state_->changed.notify_all();
  state_->delivery->stop();
  state_->changed.wait_for(lock, kLastWords, [&] { return state_->has_left; });
  // A blocked thread has set `left` before its request; keep that.
  if (state_->has_left) {
    state_->left =
        state_->delivery->left(state_->run_end ? &*state_->run_end : nullptr);
  }
  if (state_->left.empty()) return;
  state_->say("warning: " + state_->server + " has not got " + state_->left +
              (state_->is_away ? " (" + state_->why_away + ")" : ""));
}

}  // namespace headroom::notify
