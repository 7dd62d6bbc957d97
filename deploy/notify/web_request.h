// One HTTP request to a server that is not trusted. At most 64 KiB of the
// answer are read; only its status, two headers and a message are used. Answers
// below 200, such as 103 Early Hints, are skipped.
//
// Redirects are not followed, because they would send the credentials to
// another server. Certificates are verified with the machine's list of
// authorities.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "deploy/notify/addressees.h"

namespace headroom::notify {

// Thrown when a server did not accept a message.
class Undelivered : public std::runtime_error {
 public:
  explicit Undelivered(const std::string& why, int http_status = 0,
                       std::chrono::seconds retry_after = {})
      : std::runtime_error(why),
        http_status_(http_status),
        retry_after_(retry_after) {}

  // The HTTP status; 0 if there was no valid answer, or a redirect.
  int http_status() const { return http_status_; }

  // How long the server asks the client to wait; 0 if it did not ask.
  std::chrono::seconds retry_after() const { return retry_after_; }

 private:
  int http_status_;
  std::chrono::seconds retry_after_;
};

struct WebRequest {
  std::string body;  // JSON, sent by POST to the address's path
  // Value of the header Authorization; "" omits it.
  std::string authorization = {};
  // A file of certificates that are trusted instead of the machine's list.
  std::string authority = {};
  // The time limit of the whole request, except for the look-up of the host's
  // name, which takes as long as the system allows.
  std::chrono::milliseconds limit;
};

// Returns when the server has accepted the request. Throws Undelivered
// otherwise, and soon after `is_cancelled` returns true.
void post(const WebAddress& address, const WebRequest& request,
          const std::function<bool()>& is_cancelled);

}  // namespace headroom::notify
