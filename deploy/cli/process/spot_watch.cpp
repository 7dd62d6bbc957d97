#include "deploy/cli/process/spot_watch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "deploy/cli/process/file_descriptor.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

using std::chrono::milliseconds;

constexpr int kFound = 200;
constexpr int kUnauthorized = 401;

// Sends one request over its own connection, and reads until the service
// closes it or `limit` has passed: a service may keep the connection open.
MetadataAnswer ask_service(const sockaddr_in& service, milliseconds limit,
                           const std::stop_token& stop,
                           const std::string& request,
                           const std::string& header) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + limit;
  const int opened =
      socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (opened < 0) return {};
  const FileDescriptor fd(opened);
  const auto wait_for = [&](short what) {
    // The longest wait before a request to stop is noticed.
    constexpr int kSliceMs = 50;
    pollfd waiting{fd.get(), what, 0};
    while (Clock::now() < end && !stop.stop_requested()) {
      if (poll(&waiting, 1, kSliceMs) > 0) return true;
    }
    return false;
  };
  char host[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &service.sin_addr, host, sizeof host);
  const std::string text =
      cat(request, " HTTP/1.1\r\nHost: ", host, "\r\n", header,
          "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  const int connected = connect(
      fd.get(), reinterpret_cast<const sockaddr*>(&service), sizeof service);
  if (connected != 0 && (errno != EINPROGRESS || !wait_for(POLLOUT))) return {};
  // One send() is enough: the buffer of a new connection has room for the whole
  // request. If connecting has failed, send() fails too.
  if (send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size())) {
    return {};
  }
  constexpr size_t kLongest = 16 << 10;  // real answers are far shorter
  std::string answer;
  std::array<char, 4096> part;
  while (answer.size() < kLongest && wait_for(POLLIN)) {
    const ssize_t count = recv(fd.get(), part.data(), part.size(), 0);
    if (count <= 0) break;
    answer.append(part.data(), static_cast<size_t>(count));
  }
  int status = 0;
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos ||
      std::sscanf(answer.c_str(), "HTTP/1.%*1d %3d", &status) != 1) {
    return {};
  }
  return {status, answer.substr(head + 4)};
}

// The JSON object in `text`; an empty object if there is none.
nlohmann::json object_of(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

std::string field_of(const nlohmann::json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string()
             ? short_line(field->get<std::string>(), 40)
             : "";
}

// "2026-11-26T12:34:56Z" -> "12:34:56 UTC"; another text is not changed.
std::string time_of_day(const std::string& time) {
  constexpr size_t kDate = 11, kClock = 8;
  const bool is_usual = time.size() == kDate + kClock + 1 && time[10] == 'T' &&
                        time.back() == 'Z';
  return is_usual ? time.substr(kDate, kClock) + " UTC" : time;
}

// The token is sent in a header: it must be printable ASCII of limited length.
bool is_token(const std::string& text) {
  constexpr size_t kLongest = 1024;
  return !text.empty() && text.size() <= kLongest &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

// Parses http://ADDRESS[:PORT]. Names are refused: a look-up could take long.
std::optional<sockaddr_in> service_at(std::string text) {
  const std::string scheme = "http://";
  if (!text.starts_with(scheme)) return std::nullopt;
  text.erase(0, scheme.size());
  if (text.ends_with('/')) text.pop_back();
  const size_t colon = text.find(':');
  const auto port = colon == std::string::npos
                        ? std::optional<int64_t>(80)
                        : parse_whole(text.substr(colon + 1), 1, 65535);
  sockaddr_in service{};
  service.sin_family = AF_INET;
  if (!port || inet_pton(AF_INET, text.substr(0, colon).c_str(),
                         &service.sin_addr) != 1) {
    return std::nullopt;
  }
  service.sin_port = htons(static_cast<uint16_t>(*port));
  return service;
}

}  // namespace

bool SpotPoll::take_token(const AskMetadata& ask) {
  const MetadataAnswer answer =
      ask("PUT /latest/api/token",
          // The longest time for which the service gives a token.
          "X-aws-ec2-metadata-token-ttl-seconds: 21600");
  token_ = answer.status == kFound && is_token(answer.body) ? answer.body : "";
  return !token_.empty();
}

SpotNews SpotPoll::advance(const AskMetadata& ask) {
  const auto get = [&](const char* request) {
    return ask(request, "X-aws-ec2-metadata-token: " + token_);
  };
  constexpr const char* kAction = "GET /latest/meta-data/spot/instance-action";
  SpotNews news;
  if (token_.empty() && !take_token(ask)) return news;
  MetadataAnswer action = get(kAction);
  if (action.status == kUnauthorized) {  // the token has expired
    if (!take_token(ask)) return news;
    action = get(kAction);
  }
  news.is_answered = action.status != 0;
  if (action.status == kFound) news.notice = spot_reason(action.body);
  if (!news.is_answered || !news.notice.empty() || has_warned_) return news;
  const MetadataAnswer rebalance =
      get("GET /latest/meta-data/events/recommendations/rebalance");
  has_warned_ = rebalance.status == kFound &&
                !field_of(object_of(rebalance.body), "noticeTime").empty();
  if (has_warned_) {
    news.warning =
        "warning: AWS may take this spot machine away soon (a rebalance "
        "recommendation); the run goes on until it does";
  }
  return news;
}

std::string spot_reason(const std::string& instance_action) {
  const nlohmann::json json = object_of(instance_action);
  const std::string action = field_of(json, "action");
  const std::string time = time_of_day(field_of(json, "time"));
  const std::string end = action == "stop"        ? "stopped"
                          : action == "hibernate" ? "hibernated"
                          : action == "terminate" ? "taken away"
                                                  : "";
  if (end.empty()) return "";
  return "spot notice: this machine is " + end +
         (time.empty() ? " within two minutes" : " at " + time);
}

SpotWatch::SpotWatch(Options options)
    : options_(std::move(options)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::string SpotWatch::notice() const {
  const std::lock_guard lock(mutex_);
  return notice_;
}

void SpotWatch::run(const std::stop_token& stop) {
  constexpr int kUnansweredToSay = 3;  // a single lost answer is not reported
  SpotPoll poll;
  int unanswered = 0;
  while (!stop.stop_requested()) {
    const SpotNews news = poll.advance(
        [&](const std::string& request, const std::string& header) {
          return ask_service(options_.service, options_.limit, stop, request,
                             header);
        });
    if (!news.warning.empty()) options_.print(news.warning);
    unanswered = news.is_answered ? 0 : unanswered + 1;
    if (unanswered == kUnansweredToSay) {
      options_.print(
          "warning: the metadata service does not answer, so a notice that "
          "this machine is taken away will not be seen: in a pod allow a hop "
          "limit of 2, or give --spot off");
    }
    std::unique_lock lock(mutex_);
    notice_ = news.notice;
    if (!notice_.empty()) return;  // a notice is not taken back
    changed_.wait_for(lock, stop, options_.interval, [] { return false; });
  }
}

bool is_amazon_machine(const std::filesystem::path& dmi) {
  const auto begins = [&](const char* name, std::string_view with) {
    std::string line;
    std::ifstream in(dmi / name);
    std::getline(in, line);
    std::ranges::transform(line, line.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    return line.starts_with(with);
  };
  return begins("sys_vendor", "amazon ec2") ||
         begins("board_vendor", "amazon ec2") ||
         begins("bios_vendor", "amazon ec2") ||
         // Older machines have the name here, readable by root only.
         begins("product_uuid", "ec2");
}

void require_spot_choice(const std::string& choice) {
  if (choice == "auto" || choice == "off" || service_at(choice)) return;
  throw Error("command line",
              "--spot " + choice + " is no address of a metadata service",
              "give auto, off or http://ADDRESS[:PORT], with an IPv4 address");
}

std::unique_ptr<SpotWatch> watch_spot(
    const std::string& choice, std::function<void(const std::string&)> print,
    const std::filesystem::path& dmi) {
  require_spot_choice(choice);
  if (choice == "off" || (choice == "auto" && !is_amazon_machine(dmi))) {
    return nullptr;
  }
  const std::string url =
      choice == "auto" ? std::string("http://169.254.169.254") : choice;
  return std::make_unique<SpotWatch>(SpotWatch::Options{
      .service = service_at(url).value(), .print = std::move(print)});
}

}  // namespace headroom::cli
