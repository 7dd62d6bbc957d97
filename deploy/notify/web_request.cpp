#include "deploy/notify/web_request.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kLongestAnswer = 64 << 10;
constexpr seconds kConnectLimit(5);
// How long to wait for the rest of an answer once its status is known.
constexpr seconds kBodyLimit(2);
// The only status below 200 after which no further head follows.
constexpr int64_t kSwitchingProtocols = 101;
constexpr const char* kNoHttp = "an answer that is no HTTP";

template <auto kFree>
struct FreedBy {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};

// Loads the authorities that are trusted. A bundled program may run on another
// distribution than it was built on, where OpenSSL's default path may not
// exist.
bool load_authorities(SSL_CTX* context, const std::string& authority) {
  if (!authority.empty()) {
    return SSL_CTX_load_verify_locations(context, authority.c_str(), nullptr) ==
           1;
  }
  if (std::getenv("SSL_CERT_FILE") == nullptr) {
    for (const char* file : {"/etc/ssl/certs/ca-certificates.crt",
                             "/etc/pki/tls/certs/ca-bundle.crt",
                             "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
      std::error_code error;
      if (!std::filesystem::exists(file, error)) continue;
      return SSL_CTX_load_verify_locations(context, file, nullptr) == 1;
    }
  }
  return SSL_CTX_set_default_verify_paths(context) == 1;
}

// A connection to the server; plain, or with TLS above it.
class Connection {
 public:
  Connection(const WebAddress& address, const WebRequest& request,
             const std::function<bool()>& is_cancelled)
      : end_(Clock::now() + request.limit), is_cancelled_(is_cancelled) {
    stream_.reset(BIO_new(BIO_s_connect()));
    BIO_set_conn_hostname(stream_.get(), address.url_host().c_str());
    BIO_set_conn_port(stream_.get(), std::to_string(address.port).c_str());
    BIO_set_nbio(stream_.get(), 1);
    const Clock::time_point end =
        std::min<Clock::time_point>(end_, Clock::now() + kConnectLimit);
    const int connected =
        finish([&] { return BIO_do_connect(stream_.get()); }, end);
    if (connected <= 0) {
      fail(Clock::now() < end ? "no connection" : "no connection in time");
    }
    if (address.is_encrypted) encrypt(address.host, request.authority);
  }

  void write(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const int count = finish(
          [&] {
            return BIO_write(stream_.get(), text.data() + at,
                             static_cast<int>(text.size() - at));
          },
          end_);
      if (count <= 0) fail("the connection broke");
      at += static_cast<size_t>(count);
    }
  }

  // Appends the bytes that arrive next. Returns false at the end of the answer,
  // or when the time is over.
  bool read(std::string& text, Clock::time_point end) {
    char buffer[4096];
    const int count =
        finish([&] { return BIO_read(stream_.get(), buffer, sizeof buffer); },
               std::min(end, end_));
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  Clock::time_point end() const { return end_; }
  bool is_late() const { return is_cancelled_() || Clock::now() >= end_; }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Undelivered(is_cancelled_() ? "the request was ended" : why);
  }

  void encrypt(const std::string& host, const std::string& authority) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (!load_authorities(context_.get(), authority)) {
      fail("the machine's list of certificate authorities cannot be read");
    }
    BIO* const tls = BIO_new_ssl(context_.get(), /*client=*/1);
    SSL* session = nullptr;
    BIO_get_ssl(tls, &session);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) !=
        1) {
      SSL_set1_host(session, host.c_str());
      SSL_set_tlsext_host_name(session, host.c_str());
    }
    stream_.reset(BIO_push(tls, stream_.release()));
    if (finish([&] { return BIO_do_handshake(stream_.get()); }, end_) > 0) {
      return;
    }
    fail(SSL_get_verify_result(session) == X509_V_OK
             ? "no TLS connection"
             : "its certificate is not valid for this name and this machine's "
               "list of authorities");
  }

  // Repeats a call of OpenSSL while it waits for the server. Returns the call's
  // result; 0 or less: the call failed, or the time is over.
  int finish(const std::function<int()>& work, Clock::time_point end) const {
    int result = work();
    while (result <= 0 && BIO_should_retry(stream_.get()) &&
           Clock::now() < end && !is_cancelled_()) {
      pollfd socket{
          static_cast<int>(BIO_get_fd(stream_.get(), nullptr)),
          static_cast<short>(BIO_should_read(stream_.get()) ? POLLIN : POLLOUT),
          0};
      poll(&socket, 1, 50);
      result = work();
    }
    return result;
  }

  const Clock::time_point end_;
  const std::function<bool()>& is_cancelled_;
  std::unique_ptr<SSL_CTX, FreedBy<SSL_CTX_free>> context_;
  std::unique_ptr<BIO, FreedBy<BIO_free_all>> stream_;
};

// The value of the header `name`, which is in lower case; "" if it is missing.
std::string header(const std::string& head, const std::string& name) {
  std::string lower = head;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  size_t begin = lower.find("\r\n" + name + ":");
  if (begin == std::string::npos) return "";
  begin = lower.find_first_not_of(" \t", begin + name.size() + 3);
  const size_t end = lower.find("\r\n", begin);
  const size_t last = lower.find_last_not_of(" \t", end - 1);
  return begin < end ? head.substr(begin, last + 1 - begin) : "";
}

// The status in the first line of `head`: "HTTP/1.1 200 OK", or without the
// words. nullopt if it is no such line.
std::optional<int64_t> status_of(const std::string& head) {
  if (!head.starts_with("HTTP/1.") || head.find_first_of(" \r") != 8 ||
      head.find_first_of(" \r", 9) != 12) {
    return std::nullopt;
  }
  return parse_whole(head.substr(9, 3), 100, 599);
}

// Reads until the head that begins at `begin` is complete. Returns the place
// after it; npos if the answer or the time ends earlier, or if the answer is
// too long.
size_t read_head(Connection& connection, std::string& answer, size_t begin) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  size_t searched = begin;
  while (true) {
    const size_t end = answer.find(kEnd, searched);
    if (end != std::string::npos) return end + kEnd.size();
    searched = std::max(begin + kEnd.size(), answer.size()) - kEnd.size();
    if (answer.size() >= kLongestAnswer ||
        !connection.read(answer, connection.end())) {
      return std::string::npos;
    }
  }
}

// The "message" of the JSON object in `body`; "" if there is none.
std::string message_in(const std::string& body) {
  const size_t begin = body.find('{');
  if (begin == std::string::npos) return "";
  const auto json = nlohmann::json::parse(
      body.substr(begin, body.rfind('}') - begin + 1), nullptr, false);
  if (!json.is_object()) return "";
  const auto message = json.find("message");
  return message != json.end() && message->is_string()
             ? ": " + short_line(message->get<std::string>(), 200)
             : "";
}

// Scheme and host only: the path may be a secret.
std::string origin_of(const std::string& location) {
  const size_t scheme = location.find("://");
  if (scheme == std::string::npos) return "another page";
  return short_line(
      location.substr(0, location.find_first_of("/?#", scheme + 3)), 200);
}

std::string request_text(const WebAddress& address, const WebRequest& request) {
  // "https://host" and "https://host?x=1" are valid addresses too.
  const bool has_slash = address.path.starts_with('/');
  const std::string shown = address.shown();
  return cat("POST ", has_slash ? "" : "/", address.path,
             " HTTP/1.1\r\nHost: ", shown.substr(shown.find("://") + 3),
             "\r\nUser-Agent: headroom\r\nAccept: application/json\r\n"
             "Connection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: ",
             request.body.size(), "\r\n",
             request.authorization.empty()
                 ? ""
                 : "Authorization: " + request.authorization + "\r\n",
             "\r\n", request.body);
}

}  // namespace

void post(const WebAddress& address, const WebRequest& request,
          const std::function<bool()>& is_cancelled) {
  Connection connection(address, request, is_cancelled);
  connection.write(request_text(address, request));
  std::string answer, head;
  std::optional<int64_t> status;
  size_t head_end = 0;
  do {
    const size_t begin = head_end;
    head_end = read_head(connection, answer, begin);
    if (head_end == std::string::npos) {
      if (is_cancelled()) throw Undelivered("the request was ended");
      if (connection.is_late()) {
        throw Undelivered(
            "no answer within " +
            format_seconds(
                std::chrono::duration<double>(request.limit).count()));
      }
      throw Undelivered(answer.empty() ? "no answer" : kNoHttp);
    }
    head = answer.substr(begin, head_end - begin - 2);
    status = status_of(head);
    if (!status) throw Undelivered(kNoHttp);
  } while (*status < 200 && *status != kSwitchingProtocols);
  if (*status >= 200 && *status < 300) return;
  const std::string code = cat("HTTP ", *status);
  if (*status >= 300 && *status < 400) {
    throw Undelivered(code + ", a redirect to " +
                      origin_of(header(head, "location")) +
                      ", which is not followed: give that address instead");
  }
  const Clock::time_point end = Clock::now() + kBodyLimit;
  while (answer.size() < kLongestAnswer && connection.read(answer, end)) {
  }
  const bool is_denied = *status == 401 || *status == 403;
  throw Undelivered(
      code + (is_denied ? ", access denied" : "") +
          message_in(answer.substr(head_end)),
      static_cast<int>(*status),
      seconds(parse_whole(header(head, "retry-after"), 0).value_or(0)));
}

}  // namespace headroom::notify
