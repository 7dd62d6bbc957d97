// headroom notify SERVICE: a program that follows a run like the programs of
// --on-event (deploy/cli/event_programs.h), and sends the run's news to one
// server. Failed requests are repeated until they arrive, or until the run's
// process ends this program.
//
// It prints one line when the server stops answering, one when the server
// answers again, and one at the end if a message has not arrived.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "deploy/notify/web_request.h"

namespace headroom::notify {

// The messages for one server.
class Delivery {
 public:
  using Post = std::function<void(WebRequest, const WebAddress&)>;

  virtual ~Delivery() = default;

  // The server's name in messages: "the webhook at https://hooks.example".
  virtual std::string server() const = 0;
  // Takes a line of the stream.
  virtual void take(const nlohmann::ordered_json& line) = 0;
  // Whether a request can be sent now.
  virtual bool is_due() const = 0;
  // Sends one request; a later call never repeats messages that have arrived.
  // Throws Undelivered. REQUIRES: is_due().
  virtual void send(const Post& post) = 0;
  // Describes the messages that have not arrived yet; "" if all have arrived.
  virtual std::string left() const = 0;
  // How long the last messages are tried after the run's end.
  virtual std::chrono::seconds time_at_end() const = 0;
};

// Both functions read the server's address from the environment. They throw
// Error (exit 2) if the address is missing or invalid.
std::unique_ptr<Delivery> make_webhook();   // $HEADROOM_WEBHOOK
std::unique_ptr<Delivery> make_trainjob();  // see addressees.h

inline constexpr const char* kWebhookVariable = "HEADROOM_WEBHOOK";

// `service` is "webhook" or "trainjob". Returns the exit code.
int notify(const std::string& service);

void say(const std::string& line);

}  // namespace headroom::notify
