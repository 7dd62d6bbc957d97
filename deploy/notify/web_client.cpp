#include "deploy/notify/web_client.h"

#include <httplib.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "proto/channel_security.h"

namespace headroom::notify {
namespace {

constexpr size_t kLongestAnswer = 1 << 20;
constexpr auto kConnectLimit = std::chrono::seconds(5);
constexpr int64_t kLongestPause = 60;
constexpr auto kStopInterval = std::chrono::milliseconds(100);
constexpr const char* kEnded = "the request was ended";

Error refused(const std::string& flag, const std::string& what) {
  return Error("command line", flag + ": " + what,
               "write https://HOST[:PORT][/PATH], or http:// on this machine");
}

// While it lives, writing to a broken connection is an error instead of
// SIGPIPE: OpenSSL writes without MSG_NOSIGNAL.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutBrokenPipes() {
    const timespec at_once{};
    while (sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

// The machine's certificate authorities. A bundle runs on other distributions
// than its own, where OpenSSL's default path may not exist.
std::string authorities() {
  if (std::getenv("SSL_CERT_FILE") != nullptr) return "";
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt",
                           "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code error;
    if (std::filesystem::exists(file, error)) return file;
  }
  return "";
}

std::string describe(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "no connection";
    case httplib::Error::ConnectionTimeout:
      return "no connection in time";
    case httplib::Error::Read:
      return "no answer";
    case httplib::Error::Write:
      return "the connection broke";
    case httplib::Error::SSLConnection:
      return "no TLS connection";
    case httplib::Error::SSLLoadingCerts:
      return "the machine's list of certificate authorities cannot be read";
    case httplib::Error::SSLServerVerification:
      return "its certificate is not valid for this name and this machine's "
             "list of authorities";
    default:
      return "an answer that is no HTTP";
  }
}

std::string text_of_host(const WebAddress& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return is_ipv6 ? "[" + address.host + "]" : address.host;
}

std::unique_ptr<httplib::ClientImpl> connector(const WebAddress& address,
                                               const std::string& authority) {
  if (!address.is_encrypted) {
    return std::make_unique<httplib::ClientImpl>(address.host, address.port);
  }
  auto client =
      std::make_unique<httplib::SSLClient>(address.host, address.port);
  client->set_ca_cert_path(authority.empty() ? authorities() : authority);
  // The library's own check accepts any IPv4 address for a certificate for ::1.
  X509_VERIFY_PARAM* const rules = SSL_CTX_get0_param(client->ssl_context());
  const std::string& host = address.host;
  HEADROOM_CHECK(
      X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) == 1 ||
          X509_VERIFY_PARAM_set1_host(rules, host.c_str(), host.size()) == 1,
      "a host that OpenSSL cannot check");
  return client;
}

// Returns false if the file cannot be read.
bool attach_file(const std::filesystem::path& path, httplib::Request& request) {
  const auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  file->seekg(0, std::ios::end);
  const std::streamoff bytes = file->tellg();
  if (!*file || bytes < 0) return false;
  request.content_length_ = static_cast<size_t>(bytes);
  request.content_provider_ = [file](size_t offset, size_t length,
                                     httplib::DataSink& sink) {
    std::array<char, 1 << 16> part;
    file->seekg(static_cast<std::streamoff>(offset));
    file->read(part.data(),
               static_cast<std::streamsize>(std::min(length, part.size())));
    return file->gcount() > 0 &&
           sink.write(part.data(), static_cast<size_t>(file->gcount()));
  };
  return true;
}

}  // namespace

std::string WebAddress::shown() const {
  const int usual = is_encrypted ? 443 : 80;
  return (is_encrypted ? "https://" : "http://") + text_of_host(*this) +
         (port == usual ? "" : cat(":", port));
}

bool WebAddress::is_loopback() const { return wire::is_loopback(host); }

WebAddress parse_web_address(const std::string& flag, const std::string& text) {
  WebAddress address;
  std::string rest;
  if (text.starts_with("https://")) {
    address.is_encrypted = true;
    rest = text.substr(8);
  } else if (text.starts_with("http://")) {
    rest = text.substr(7);
  } else {
    throw refused(flag, "the address begins with neither https:// nor http://");
  }
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) {
    throw refused(flag, "the address has a character that none may have");
  }
  const size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  address.path = rest.substr(slash);
  std::string host = rest.substr(0, slash);
  if (host.find('@') != std::string::npos) {
    throw refused(flag,
                  "an address with a name or password in it is kept nowhere "
                  "secret");
  }
  address.port = address.is_encrypted ? 443 : 80;
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && !host.ends_with(']')) {
    const auto port = parse_whole(host.substr(colon + 1), 1, 65535);
    if (!port) throw refused(flag, "the address's port is no port");
    address.port = static_cast<int>(*port);
    host.resize(colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) throw refused(flag, "the address has no host");
  address.host = host;
  return address;
}

std::string basic_authorization(const std::string& name,
                                const std::string& password) {
  return httplib::make_basic_authentication_header(name, password).second;
}

WebClient::WebClient(WebAddress address, std::string authorization,
                     std::string authority)
    : address_(std::move(address)),
      authorization_(std::move(authorization)),
      authority_(std::move(authority)) {}

void WebClient::cut() {
  const std::lock_guard lock(mutex_);
  is_cut_ = true;
  changed_.notify_all();
}

void WebClient::go_on() {
  const std::lock_guard lock(mutex_);
  is_cut_ = false;
}

void WebClient::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

WebAnswer WebClient::send(const WebRequest& asked,
                          std::chrono::milliseconds limit) {
  WebAnswer answer;
  {
    const std::lock_guard lock(mutex_);
    if (is_cut_ || is_stopped_) {
      answer.fault = kEnded;
      return answer;
    }
  }
  httplib::Request request;
  request.method = asked.method;
  request.path = address_.path + asked.path;
  // "https://host" and "https://host?x=1" are valid addresses too.
  if (!request.path.starts_with('/')) request.path.insert(0, "/");
  request.body = asked.body;
  request.set_header("User-Agent", "headroom");
  request.set_header("Accept", "application/json");
  request.set_header("Content-Type", asked.file.empty()
                                         ? "application/json"
                                         : "application/octet-stream");
  const std::string& authorization =
      asked.authorization.empty() ? authorization_ : asked.authorization;
  if (!authorization.empty()) {
    request.set_header("Authorization", authorization);
  }
  if (!asked.file.empty() && !attach_file(asked.file, request)) {
    answer.fault = asked.file.string() + " cannot be read";
    return answer;
  }
  bool is_too_long = false;
  request.content_receiver = [&](const char* data, size_t size, uint64_t,
                                 uint64_t) {
    is_too_long = answer.body.size() + size > kLongestAnswer;
    if (!is_too_long) answer.body.append(data, size);
    return !is_too_long;
  };
  const WithoutBrokenPipes no_signals;
  const std::unique_ptr<httplib::ClientImpl> client =
      connector(address_, authority_);
  limit = std::max(limit, std::chrono::milliseconds(1));
  client->set_follow_location(false);
  client->set_connection_timeout(
      std::min<std::chrono::milliseconds>(kConnectLimit, limit));
  client->set_read_timeout(limit);
  client->set_write_timeout(limit);

  // The timeouts above limit each read and write. This limits the whole
  // request, against a server that sends a byte now and then.
  bool is_late = false, is_ended = false;
  std::jthread watchdog([&](const std::stop_token& done) {
    std::unique_lock lock(mutex_);
    is_ended = changed_.wait_for(lock, done, limit,
                                 [&] { return is_cut_ || is_stopped_; });
    is_late = !is_ended && !done.stop_requested();
    // A client that is still connecting loses a stop(), so repeat it.
    while (!done.stop_requested()) {
      lock.unlock();
      client->stop();
      lock.lock();
      changed_.wait_for(lock, done, kStopInterval, [] { return false; });
    }
  });
  const httplib::Result result = client->send(request);
  watchdog.request_stop();
  watchdog.join();
  if (result) {
    answer.status = result->status;
    answer.location = result->get_header_value("Location");
    answer.retry_after = std::chrono::seconds(
        parse_whole(result->get_header_value("Retry-After"), 0, kLongestPause)
            .value_or(0));
    return answer;
  }
  answer.body.clear();
  answer.fault =
      is_too_long ? "an answer longer than " + format_bytes(kLongestAnswer)
      : is_ended  ? kEnded
      : is_late
          ? "no answer within " +
                format_seconds(std::chrono::duration<double>(limit).count())
          : describe(result.error());
  return answer;
}

}  // namespace headroom::notify
