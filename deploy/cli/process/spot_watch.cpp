#include "deploy/cli/process/spot_watch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kAmazonService = "169.254.169.254";
constexpr uint16_t kHttpPort = 80;
// A real service's answers are far shorter.
constexpr size_t kLongestAnswer = 16 << 10;
// The longest wait before a request to stop is noticed.
constexpr milliseconds kSlice(50);

// One request to the service over its own connection. Time and size are limited
// whatever the service sends.
class Question {
 public:
  Question(const sockaddr_in& service, milliseconds limit,
           const std::stop_token& stop)
      : service_(service), end_(Clock::now() + limit), stop_(stop) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }
  ~Question() {
    if (fd_ >= 0) close(fd_);
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  MetadataAnswer ask(const MetadataRequest& request) {
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &service_.sin_addr, host, sizeof host);
    const std::string text = request.method + " " + request.path +
                             " HTTP/1.1\r\nHost: " + host + "\r\n" +
                             request.header +
                             "\r\nContent-Length: 0\r\nConnection: close\r\n"
                             "\r\n";
    if (!connect_in_time() || !send_all(text)) return {};
    return receive();
  }

 private:
  bool wait_for(short what) {
    while (Clock::now() < end_ && !stop_.stop_requested()) {
      pollfd waiting{fd_, what, 0};
      const int found = poll(&waiting, 1, static_cast<int>(kSlice.count()));
      if (found > 0) return true;
      if (found < 0 && errno != EINTR) return false;
    }
    return false;
  }

  bool connect_in_time() {
    if (fd_ < 0) return false;
    const auto* const address = reinterpret_cast<const sockaddr*>(&service_);
    if (connect(fd_, address, sizeof service_) == 0) return true;
    if (errno != EINPROGRESS || !wait_for(POLLOUT)) return false;
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
           error == 0;
  }

  bool send_all(std::string text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.erase(0, static_cast<size_t>(sent));
      } else if (errno != EAGAIN || !wait_for(POLLOUT)) {
        return false;
      }
    }
    return true;
  }

  // The body ends at its stated length or when the connection closes: a service
  // may keep the connection open.
  MetadataAnswer receive() {
    std::string text;
    std::array<char, 4096> part;
    while (text.size() < kLongestAnswer) {
      if (const auto answer = whole_answer(text)) return *answer;
      const ssize_t count = recv(fd_, part.data(), part.size(), 0);
      if (count > 0) {
        text.append(part.data(), static_cast<size_t>(count));
      } else if (count == 0) {
        return parsed(text, text.size());
      } else if (errno != EAGAIN || !wait_for(POLLIN)) {
        return {};
      }
    }
    return {};
  }

  static std::optional<MetadataAnswer> whole_answer(const std::string& text) {
    const size_t body = text.find("\r\n\r\n");
    if (body == std::string::npos) return std::nullopt;
    std::string head = text.substr(0, body + 2);
    std::transform(head.begin(), head.end(), head.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const std::string name = "\r\ncontent-length:";
    const size_t at = head.find(name);
    if (at == std::string::npos) return std::nullopt;
    const size_t begin = head.find_first_not_of(' ', at + name.size());
    const auto length = parse_whole(
        head.substr(begin, head.find('\r', begin) - begin), 0, kLongestAnswer);
    const size_t end = body + 4 + static_cast<size_t>(length.value_or(0));
    if (!length || text.size() < end) return std::nullopt;
    return parsed(text, end);
  }

  static MetadataAnswer parsed(const std::string& text, size_t end) {
    int status = 0;
    if (std::sscanf(text.c_str(), "HTTP/1.%*1d %3d", &status) != 1) return {};
    const size_t body = text.find("\r\n\r\n");
    if (body == std::string::npos) return {};
    return {status, text.substr(body + 4, end - body - 4)};
  }

  const sockaddr_in service_;
  const Clock::time_point end_;
  const std::stop_token& stop_;
  int fd_ = -1;
};

// Parses http://ADDRESS[:PORT]. Names are refused: a look-up could take long.
std::optional<sockaddr_in> service_at(std::string text) {
  const std::string scheme = "http://";
  if (!text.starts_with(scheme)) return std::nullopt;
  text.erase(0, scheme.size());
  if (text.ends_with('/')) text.pop_back();
  sockaddr_in service{};
  service.sin_family = AF_INET;
  service.sin_port = htons(kHttpPort);
  if (const size_t colon = text.find(':'); colon != std::string::npos) {
    const auto port = parse_whole(text.substr(colon + 1), 1, 65535);
    if (!port) return std::nullopt;
    service.sin_port = htons(static_cast<uint16_t>(*port));
    text.resize(colon);
  }
  if (inet_pton(AF_INET, text.c_str(), &service.sin_addr) != 1) {
    return std::nullopt;
  }
  return service;
}

}  // namespace

namespace {

// A single lost answer is not reported.
constexpr int kUnansweredToSay = 3;

}  // namespace

SpotWatch::SpotWatch(Options options)
    : options_(std::move(options)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

SpotWatch::~SpotWatch() = default;

std::string SpotWatch::notice() const {
  const std::lock_guard lock(mutex_);
  return notice_;
}

void SpotWatch::run(const std::stop_token& stop) {
  SpotPoll questions;
  int unanswered = 0;
  while (!stop.stop_requested()) {
    const SpotNews news =
        questions.advance([&](const MetadataRequest& request) {
          return Question(options_.service, options_.limit, stop).ask(request);
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
      choice == "auto" ? std::string("http://") + kAmazonService : choice;
  return std::make_unique<SpotWatch>(SpotWatch::Options{
      .service = service_at(url).value(), .print = std::move(print)});
}

}  // namespace headroom::cli
