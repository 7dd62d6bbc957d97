// WebClient: one HTTP request after another to one server, each within a time
// limit from when it is connected, whatever that server does. What comes before
// has limits of its own: the connection to each address of the host and each
// wait of a TLS handshake take at most 5 s, the look-up of the name as long as
// the system lets it. Nobody can end these.
//
// No redirect is followed: credentials would go to whoever is named there. An
// answer is cut at 1 MiB. Certificates are verified with the machine's list.
//
// Threads: send() from one; the others from any.
// Errors: Error (exit 2) for an address that is none. What goes wrong with a
// server is a value.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>

namespace headroom::notify {

struct WebAddress {
  bool is_encrypted = false;
  std::string host;
  int port = 0;
  std::string path;  // all that follows, as it was given; "" for nothing

  // Scheme, host and port; the path may be a secret.
  std::string shown() const;
  bool is_loopback() const;
};

// `flag` is named in refusals, which do not show the text: it may hold a
// password.
WebAddress parse_web_address(const std::string& flag, const std::string& text);

// The value of the header Authorization for a name and a password.
std::string basic_authorization(const std::string& name,
                                const std::string& password);

struct WebRequest {
  std::string method = "POST";
  std::string path;  // follows the address's own
  std::string body = {};
  // A file that is sent instead of the body; "" for none.
  std::filesystem::path file = {};
  // The header Authorization of this request; "" for the client's.
  std::string authorization = {};
};

struct WebAnswer {
  int status = 0;  // 0: there was no answer, and `fault` says why
  std::string body = {};
  std::string location = {};  // a redirect's target
  std::chrono::seconds retry_after{0};
  std::string fault = {};

  bool is_good() const { return status >= 200 && status < 300; }
};

class WebClient {
 public:
  // `authorization` is the value of that header; "" for none. `authority` is a
  // file of certificates that are trusted instead of the machine's list.
  explicit WebClient(WebAddress address, std::string authorization = "",
                     std::string authority = "");

  WebAnswer send(const WebRequest& request, std::chrono::milliseconds limit);
  // Ends the request that is under way, and refuses later ones until go_on().
  void cut();
  void go_on();
  // Does the same for ever.
  void stop();

  const WebAddress& address() const { return address_; }

 private:
  const WebAddress address_;
  const std::string authorization_, authority_;
  std::mutex mutex_;  // guards the two flags
  std::condition_variable_any changed_;
  bool is_cut_ = false, is_stopped_ = false;
};

}  // namespace headroom::notify
