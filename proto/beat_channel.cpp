#include "proto/beat_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "parallel/base/check.h"

namespace headroom::wire {

BeatChannel& BeatChannel::operator=(BeatChannel&& other) noexcept {
  close();
  fd_ = std::exchange(other.fd_, -1);
  is_open_ = other.is_open_;
  return *this;
}

std::pair<BeatChannel, BeatChannel> BeatChannel::make_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    throw Error("launch", std::string("no socket: ") + strerror(errno),
                "raise the limit of open files (ulimit -n)",
                ExitCode::kResource);
  }
  return {BeatChannel(fds[0]), BeatChannel(fds[1])};
}

BeatChannel BeatChannel::from_environment() {
  const char* const number = std::getenv(kBeatChannelVariable);
  if (number == nullptr) return {};
  const int fd = std::atoi(number);
  ::unsetenv(kBeatChannelVariable);
  int type = 0;
  socklen_t size = sizeof type;
  const bool is_one = fd > STDERR_FILENO &&
                      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                      type == SOCK_SEQPACKET &&
                      fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
  return is_one ? BeatChannel(fd) : BeatChannel();
}

bool BeatChannel::send(const void* record, size_t size) {
  if (!is_open()) return false;
  const ssize_t sent =
      ::send(fd_, record, size, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_EOR);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) is_open_ = false;
  return sent == static_cast<ssize_t>(size);
}

bool BeatChannel::receive(void* record, size_t size,
                          std::chrono::milliseconds wait) {
  if (!is_open()) return false;
  pollfd ready{fd_, POLLIN, 0};
  const auto most = static_cast<int>(std::max<int64_t>(0, wait.count()));
  if (poll(&ready, 1, most) <= 0) return false;
  const ssize_t count = recv(fd_, record, size, MSG_DONTWAIT | MSG_TRUNC);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
    is_open_ = false;
  }
  return count == static_cast<ssize_t>(size);
}

void BeatChannel::hang_up() {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

void BeatChannel::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace headroom::wire
