#include "deploy/cli/process/refusal_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

namespace headroom::cli {
namespace {

constexpr size_t kLongest = 64 << 10;  // the capacity of a pipe

int& channel() {
  static int fd = -1;
  return fd;
}

}  // namespace

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
  const std::string text =
      nlohmann::json{{"refusal", refusal.text.substr(0, kLongest / 8)},
                     {"tag", refusal.tag}}
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

std::optional<Refusal> read_refusal(int fd) {
  // A grandchild may still hold the writing end, so never block.
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t count; text.size() < kLongest;) {
    count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto text_of = [&](const char* key) -> std::optional<std::string> {
    const auto value = json.find(key);
    if (value == json.end() || !value->is_string()) return std::nullopt;
    return value->get<std::string>();
  };
  auto refusal = text_of("refusal");
  if (!refusal) return std::nullopt;
  return Refusal{std::move(*refusal), text_of("tag").value_or("")};
}

}  // namespace headroom::cli
