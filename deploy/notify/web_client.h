// WebClient: sends HTTP requests to one server, one after another. From the
// moment of connection each request has a time limit, whatever the server does.
// The steps before that have other limits and cannot be aborted: connecting to
// each address of the host and each wait of a TLS handshake take at most 5 s;
// looking up the name takes as long as the system allows.
//
// Redirects are not followed, because they would send the credentials to
// another server. Answers are cut at 1 MiB. Certificates are verified with the
// machine's list of authorities.
//
// Threads: send() from one thread; the others from any.
// Errors: Error (exit 2) for an invalid address. A server's failure is returned
// as a value.
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
  std::string path;  // the rest, as it was given; may be ""

  // Scheme, host and port, without the path, which may be a secret.
  std::string shown() const;
  bool is_loopback() const;
};

// Refusals name `flag` but do not show the text, which may contain a password.
WebAddress parse_web_address(const std::string& flag, const std::string& text);

// The value of the header Authorization for a name and a password.
std::string basic_authorization(const std::string& name,
                                const std::string& password);

struct WebRequest {
  std::string method = "POST";
  std::string path;  // appended to the address's own path
  std::string body = {};
  // A file to send instead of the body; "" if there is none.
  std::filesystem::path file = {};
  // The header Authorization of this request; "" uses the client's.
  std::string authorization = {};
};

struct WebAnswer {
  int status = 0;  // 0 without an answer; see `fault`
  std::string body = {};
  std::string location = {};  // the target of a redirect
  std::chrono::seconds retry_after{0};
  std::string fault = {};

  bool is_good() const { return status >= 200 && status < 300; }
};

class WebClient {
 public:
  // `authorization` is the value of that header; "" omits it. `authority` is a
  // file of certificates that are trusted instead of the machine's list.
  explicit WebClient(WebAddress address, std::string authorization = "",
                     std::string authority = "");

  WebAnswer send(const WebRequest& request, std::chrono::milliseconds limit);
  // Aborts the current request and refuses later ones until go_on().
  void cut();
  void go_on();
  // Aborts the current request and refuses all later ones.
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
