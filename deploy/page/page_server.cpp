#include "deploy/page/page_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <utility>

#include "coordinator/service/listen_address.h"
#include "deploy/page/event_stream.h"
#include "deploy/page/page_text.h"
#include "deploy/page/strangers.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"

namespace headroom::page {
namespace {

using coordinator::ListenAddress;

// The connections for readers with the token, and the most connections without
// it (strangers.h). Twice as many connections without it may be open, because
// some are being closed.
constexpr unsigned int kLeftToReaders = 256;
constexpr unsigned int kMostStrangers = 128;
constexpr unsigned int kMostConnections = kLeftToReaders + 2 * kMostStrangers;
constexpr const char* kTokenHeader = "X-Headroom-Token";
constexpr int64_t kMostPoints = 4000;
constexpr int64_t kUsualPoints = 1500;
constexpr int64_t kFurthestStep = int64_t{1} << 53;

Error cannot_listen(const PageOptions& options, const std::string& why) {
  return Error("page", "cannot listen on " + options.listen + ": " + why,
               "choose another address with " + options.flag + " HOST:PORT");
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// "[::1]:80" -> "::1"; "localhost" -> "localhost".
std::string host_without_port(const std::string& host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string::npos ? "" : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_number(const std::string& host) {
  in_addr ipv4{};
  in6_addr ipv6{};
  return ::inet_pton(AF_INET, host.c_str(), &ipv4) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ipv6) == 1;
}

std::string machine_name() { return lower_case(this_host_name()); }

// Whether `host` is the machine's short name, alone or with a domain. Clients
// may use the full name even if the machine itself has only the short name.
bool is_this_machine(const std::string& host) {
  const std::string name = machine_name();
  const std::string short_name = name.substr(0, name.find('.'));
  return !short_name.empty() &&
         (host == short_name || host.starts_with(short_name + "."));
}

// Whether the Host header names this server. A page of another site can reach
// this server only by that site's name. IP addresses and this machine's names
// belong to no other site. Ports may differ, because a tunnel uses its own
// port. With HTTPS the browser checks the name by the certificate.
bool is_host_of(const std::string& given, const ListenAddress& address,
                bool is_encrypted) {
  const std::string host = lower_case(host_without_port(given));
  if (host.empty()) return false;
  if (is_encrypted) return true;
  if (host == lower_case(address.host)) return true;
  if (wire::is_loopback(address.host)) return wire::is_loopback(host);
  const bool is_any = address.host == "0.0.0.0" || address.host == "::";
  return is_any &&
         (is_number(host) || host == "localhost" || is_this_machine(host));
}

// The Content-Security-Policy of the page. `nonce` allows the page's own
// script.
std::string content_policy(const std::string& nonce) {
  return "default-src 'none'; style-src 'unsafe-inline'; script-src " +
         (nonce.empty() ? std::string("'none'") : "'nonce-" + nonce + "'") +
         "; img-src blob: data:; connect-src 'self'; base-uri 'none'; "
         "form-action 'none'; frame-ancestors 'none'";
}

void free_text(void* text) { delete static_cast<Text*>(text); }

// A response that shares `text` instead of copying it.
MHD_Response* response_of(const Text& text) {
  auto kept = std::make_unique<Text>(text);
  // The library does not write to the text.
  MHD_Response* const response =
      MHD_create_response_from_buffer_with_free_callback_cls(
          text->size(), const_cast<char*>(text->data()), &free_text,
          kept.get());
  if (response != nullptr) kept.release();
  return response;
}

struct Answer {
  unsigned int status = MHD_HTTP_OK;
  std::string type;
  MHD_Response* response = nullptr;  // nullptr if memory is short
  std::string nonce = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

Answer text_answer(unsigned int status, const std::string& line) {
  return {status, "text/plain; charset=utf-8",
          response_of(std::make_shared<const std::string>(line + "\n"))};
}

Answer not_found() {
  return text_answer(MHD_HTTP_NOT_FOUND, "There is nothing here.");
}

Answer json_answer(const Text& text) {
  if (text == nullptr) return not_found();
  return {MHD_HTTP_OK, "application/json; charset=utf-8", response_of(text)};
}

std::string value_of(MHD_Connection* connection, MHD_ValueKind kind,
                     const char* name) {
  const char* value = nullptr;
  size_t size = 0;
  const bool is_there =
      MHD_lookup_connection_value_n(connection, kind, name, std::strlen(name),
                                    &value, &size) == MHD_YES;
  return is_there && value != nullptr ? std::string(value, size) : "";
}

void log_nothing(void*, const char*, va_list) {}

}  // namespace

class PageServer::Server {
 public:
  explicit Server(PageOptions options)
      : options_(std::move(options)),
        address_(coordinator::parse_listen_address(options_.listen)),
        shelf_(options_.source, options_.stop != nullptr),
        token_(wire::draw_token()),
        strangers_(kMostStrangers, options_.head_time) {
    wire::require_protected(options_.listen, options_.security,
                            options_.insecure_network);
    events_ = std::make_unique<EventStream>(
        shelf_, options_.source.refresh_interval, options_.sign_of_life);
    const std::string why = start();
    if (!why.empty()) {
      events_->stop();
      throw cannot_listen(options_, why);
    }
    port_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

  ~Server() {
    events_->stop();
    MHD_stop_daemon(daemon_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  const std::string& token() const { return token_; }
  std::string address() const {
    ListenAddress shown = address_;
    shown.port = port_;
    if (shown.host == "0.0.0.0" || shown.host == "::") {
      const std::string name = machine_name();
      if (!name.empty()) shown.host = name;
    }
    return (is_encrypted() ? "https://" : "http://") + shown.to_string() +
           "/?token=" + token_;
  }

 private:
  bool is_encrypted() const { return options_.security.is_encrypted(); }

  // Returns why the server cannot listen at the address; "" if it does.
  std::string start() {
    std::string why;
    const coordinator::Addresses found = coordinator::resolved(address_, &why);
    if (!found) return why;
    std::vector<MHD_OptionItem> items = {
        {MHD_OPTION_EXTERNAL_LOGGER, reinterpret_cast<intptr_t>(&log_nothing),
         nullptr},
        {MHD_OPTION_SOCK_ADDR, 0, found->ai_addr},
        {MHD_OPTION_CONNECTION_LIMIT, kMostConnections, nullptr},
        {MHD_OPTION_NOTIFY_CONNECTION,
         reinterpret_cast<intptr_t>(&Server::notice), this},
        {MHD_OPTION_CONNECTION_TIMEOUT,
         static_cast<intptr_t>(options_.idle_time.count()), nullptr}};
    unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD |
                         MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (found->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    if (is_encrypted()) {
      flags |= MHD_USE_TLS;
      items.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0,
                       const_cast<char*>(options_.security.key.c_str())});
      items.push_back(
          {MHD_OPTION_HTTPS_MEM_CERT, 0,
           const_cast<char*>(options_.security.certificate.c_str())});
    }
    items.push_back({MHD_OPTION_END, 0, nullptr});
    daemon_ =
        MHD_start_daemon(flags, 0, nullptr, nullptr, &Server::handle, this,
                         MHD_OPTION_ARRAY, items.data(), MHD_OPTION_END);
    if (daemon_ != nullptr) return "";
    why = coordinator::binding_error(address_);
    return why.empty() ? "the system refuses what a server needs" : why;
  }

  // Is called when a connection begins or ends.
  static void notice(void* server, MHD_Connection* connection, void** visitor,
                     MHD_ConnectionNotificationCode what) {
    Strangers& strangers = static_cast<Server*>(server)->strangers_;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
      if (*visitor != nullptr) {
        strangers.left(static_cast<Strangers::Visitor*>(*visitor));
      }
      *visitor = nullptr;
      return;
    }
    const MHD_ConnectionInfo* const about =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    try {
      *visitor = strangers.arrived(about->connect_fd);
    } catch (const std::exception&) {
      // There is no memory for a visitor, so handle() closes the connection.
      *visitor = nullptr;
    }
  }

  static MHD_Result handle(void* server, MHD_Connection* connection,
                           const char* path, const char* method, const char*,
                           const char*, size_t*, void**) {
    try {
      const Answer answer =
          static_cast<Server*>(server)->answer(connection, path, method);
      return send(connection, answer);
    } catch (const std::exception&) {
      return MHD_NO;  // out of memory: the library closes the connection
    }
  }

  static MHD_Result send(MHD_Connection* connection, const Answer& answer) {
    if (answer.response == nullptr) return MHD_NO;
    const auto add = [&](const char* name, const std::string& value) {
      MHD_add_response_header(answer.response, name, value.c_str());
    };
    add("Content-Type", answer.type);
    add("Content-Security-Policy", content_policy(answer.nonce));
    add("X-Content-Type-Options", "nosniff");
    add("Cache-Control", "no-store");
    add("Referrer-Policy", "no-referrer");
    for (const auto& [name, value] : answer.headers) add(name.c_str(), value);
    const MHD_Result result =
        MHD_queue_response(connection, answer.status, answer.response);
    MHD_destroy_response(answer.response);
    return result;
  }

  // Whether the request has the page's token, in its address or in a header.
  // The page sets the header itself. A browser would send a cookie to every
  // port of this machine, but sends the header to this server only.
  bool has_token(MHD_Connection* connection) const {
    const auto is_given = [&](MHD_ValueKind kind, const char* name) {
      return wire::equal_secrets(value_of(connection, kind, name), token_);
    };
    return is_given(MHD_HEADER_KIND, kTokenHeader) ||
           is_given(MHD_GET_ARGUMENT_KIND, "token");
  }

  Answer answer(MHD_Connection* connection, const std::string& path,
                const std::string& method) {
    const bool is_reader = has_token(connection);
    auto* const visitor = static_cast<Strangers::Visitor*>(
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
            ->socket_context);
    if (visitor == nullptr) return {};
    const bool is_stranger = strangers_.asked(*visitor, is_reader);
    Answer answer = answer_to(connection, path, method, is_reader);
    if (is_stranger) answer.headers.emplace_back("Connection", "close");
    return answer;
  }

  Answer answer_to(MHD_Connection* connection, const std::string& path,
                   const std::string& method, bool is_reader) {
    const bool asks_to_stop = method == "POST" && path == "/api/stop";
    if (method != "GET" && method != "HEAD" &&
        !(asks_to_stop && options_.stop)) {
      Answer refusal = text_answer(MHD_HTTP_METHOD_NOT_ALLOWED,
                                   "This server only answers GET and HEAD.");
      refusal.headers.emplace_back("Allow", "GET, HEAD");
      return refusal;
    }
    if (const std::string why = stranger(connection); !why.empty()) {
      return text_answer(MHD_HTTP_FORBIDDEN, why);
    }
    // The page itself contains no data of a run.
    if (path == "/" && !asks_to_stop) return page();
    if (!is_reader) {
      return text_answer(
          MHD_HTTP_FORBIDDEN,
          "This page needs its token: open the address that headroom printed, "
          "which ends in /?token=...");
    }
    return asks_to_stop ? stop(connection) : content(connection, path);
  }

  // A page of another site cannot send this header or this page's Origin.
  Answer stop(MHD_Connection* connection) const {
    if (value_of(connection, MHD_HEADER_KIND, "Origin").empty() ||
        value_of(connection, MHD_HEADER_KIND, "X-Headroom-Control") != "stop") {
      return text_answer(MHD_HTTP_FORBIDDEN, "Only the page may stop the run.");
    }
    options_.stop();
    return text_answer(MHD_HTTP_ACCEPTED, "The run is asked to stop.");
  }

  // Why a request from another site's page is refused; "" for other requests.
  std::string stranger(MHD_Connection* connection) const {
    const std::string host = value_of(connection, MHD_HEADER_KIND, "Host");
    if (!is_host_of(host, address_, is_encrypted())) {
      return "This server is not reached by that name: open the address that "
             "headroom printed.";
    }
    const char* const origin =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const std::string own =
        lower_case((is_encrypted() ? "https://" : "http://") + host);
    if (origin != nullptr && lower_case(origin) != own) {
      return "Another site may not read this page.";
    }
    return "";
  }

  Answer content(MHD_Connection* connection, const std::string& path) {
    const auto word = [&](const char* name) {
      return value_of(connection, MHD_GET_ARGUMENT_KIND, name);
    };
    const std::string id = word("id");
    if (path == "/events") {
      return {MHD_HTTP_OK, "text/event-stream; charset=utf-8",
              events_->subscribe(connection)};
    }
    if (path == "/files") return picture(id, word("name"));
    // Reads a number of the request; the answer to a wrong number states the
    // range.
    std::string wrong;
    const auto number = [&](const char* name, int64_t usual, int64_t low,
                            int64_t high) {
      const std::string text = word(name);
      const auto value = text.empty() ? usual : parse_whole(text, low, high);
      if (!value) wrong = cat(name, " is a number from ", low, " to ", high);
      return value.value_or(low);
    };
    const int64_t events = number("events", kMostEvents, 1, kMostEvents);
    const int64_t points = number("points", kUsualPoints, 1, kMostPoints);
    const int64_t from = number("from", 0, 0, kFurthestStep);
    const int64_t rank = number("rank", 0, 0, 1 << 20);
    if (!wrong.empty()) {
      return text_answer(MHD_HTTP_BAD_REQUEST, wrong + ".");
    }
    using Made = std::optional<std::string>;
    const auto answer = [&](const std::string& question, auto make) {
      return json_answer(shelf_.answer(id, question, make));
    };
    if (path == "/api/run") {
      return answer(cat("run ", events), [&](RunRecord& record) -> Made {
        return record.document(static_cast<size_t>(events));
      });
    }
    if (path == "/api/plan") {
      return answer("plan",
                    [](RunRecord& record) -> Made { return record.plan(); });
    }
    if (path == "/api/steps") {
      return answer(cat("steps ", points, " ", from),
                    [&](RunRecord& record) -> Made {
                      return record.steps(static_cast<size_t>(points), from);
                    });
    }
    if (path == "/api/timeline") {
      return answer(cat("timeline ", rank), [&](RunRecord& record) {
        return record.timeline(static_cast<int>(rank));
      });
    }
    return not_found();
  }

  static Answer page() {
    const std::string nonce = wire::draw_token();
    std::string text(page_text());
    const size_t at = text.find(kScriptTag);
    if (at != std::string::npos) {
      text.replace(at, kScriptTag.size(), "<script nonce=\"" + nonce + "\">");
    }
    return {MHD_HTTP_OK, "text/html; charset=utf-8",
            response_of(std::make_shared<const std::string>(std::move(text))),
            nonce};
  }

  Answer picture(const std::string& id, const std::string& name) {
    const auto file = shelf_.picture(id, name);
    if (!file) return not_found();
    RegularFile opened(*file, Links::kRefused);
    if (!opened.is_open()) return not_found();
    // The response reads the file only as fast as the browser receives it, and
    // closes the file.
    MHD_Response* const response =
        MHD_create_response_from_fd64(opened.size(), opened.descriptor());
    if (response != nullptr) opened.release();
    return {MHD_HTTP_OK, name.ends_with(".png") ? "image/png" : "image/jpeg",
            response};
  }

  const PageOptions options_;
  const ListenAddress address_;
  RunShelf shelf_;
  const std::string token_;
  int port_ = 0;
  Strangers strangers_;
  std::unique_ptr<EventStream> events_;
  MHD_Daemon* daemon_ = nullptr;
};

PageServer::PageServer(PageOptions options)
    : server_(std::make_unique<Server>(std::move(options))) {}
PageServer::~PageServer() = default;
std::string PageServer::address() const { return server_->address(); }
int PageServer::port() const { return server_->port(); }
const std::string& PageServer::token() const { return server_->token(); }

}  // namespace headroom::page
