#include "proto/refusal_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::wire {
namespace {

constexpr size_t kLongest = 64 << 10;  // the capacity of a pipe

int& channel() {
  static int fd = -1;
  return fd;
}

}  // namespace

std::string Refusal::line() const {
  return tag.empty() ? text : Error(tag, text, remedy).what();
}

void open_refusal_channel() {
  const char* const number = std::getenv(kRefusalVariable);
  if (number == nullptr) return;
  const int fd = std::atoi(number);
  ::unsetenv(kRefusalVariable);
  if (fd > STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) channel() = fd;
}

void tell_parent(const Refusal& refusal) {
  const int fd = std::exchange(channel(), -1);
  if (fd < 0) return;
  // A path may contain any bytes; JSON escapes make it up to six times as long.
  const std::string text =
      nlohmann::json{{"tag", refusal.tag},
                     {"text", shortened(refusal.text, kLongest / 16)},
                     {"remedy", shortened(refusal.remedy, kLongest / 16)}}
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

std::optional<Refusal> read_refusal(int fd) {
  // A grandchild may still hold the writing end, so never block.
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::string bytes;
  char buffer[4096];
  for (ssize_t count; bytes.size() < kLongest;) {
    count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.append(buffer, static_cast<size_t>(count));
  }
  const auto json = nlohmann::json::parse(bytes, nullptr, false);
  const auto has_text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string();
  };
  if (!has_text("tag") || !has_text("text") || !has_text("remedy")) {
    return std::nullopt;
  }
  return Refusal{json["text"], json["tag"], json["remedy"]};
}

}  // namespace headroom::wire
