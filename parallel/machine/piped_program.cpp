#include "parallel/machine/piped_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "parallel/base/environment.h"
#include "parallel/base/text.h"

namespace headroom {
namespace {

constexpr std::chrono::seconds kGrace{2};  // time between SIGTERM and SIGKILL

// "[mjpeg @ 0x55a219] [error] overread 8\n" -> "[mjpeg] overread 8". Sets
// `is_error` if the line has the mark of an error.
std::string message_of(std::string line, bool& is_error) {
  line.erase(line.find_last_not_of(" \r\n") + 1);
  for (size_t at; (at = line.find(" @ 0x")) != line.npos;) {
    line.erase(at, line.find(']', at) - at);
  }
  is_error = false;
  for (const std::string mark : {"[error] ", "[fatal] ", "[panic] "}) {
    const size_t at = line.find(mark);
    if (at == line.npos) continue;
    line.erase(at, mark.size());
    is_error = true;
  }
  return line;
}

}  // namespace

PipedProgram::PipedProgram(std::vector<std::string> words,
                           std::chrono::seconds patience,
                           std::function<void(std::string)> on_error_line)
    : name_(words.front()),
      patience_(patience),
      on_error_line_(std::move(on_error_line)) {
  start(words);
}

void PipedProgram::start(std::vector<std::string>& words) {
  // A socket is used instead of a pipe: it has time limits, and writing to a
  // program that has ended raises no signal.
  int ends[2], errors[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    failure_ = cat(name_, " cannot be started: ", std::strerror(errno));
    return;
  }
  pipe_ = ends[0];
  const timeval limit{static_cast<time_t>(patience_.count()), 0};
  ::setsockopt(pipe_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(pipe_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::pipe2(errors, O_CLOEXEC) != 0) {
    failure_ = cat(name_, " cannot be started: ", std::strerror(errno));
    ::close(ends[1]);
    return;
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors[1], STDERR_FILENO);
  posix_spawnattr_t own_group;
  posix_spawnattr_init(&own_group);
  posix_spawnattr_setpgroup(&own_group, 0);
  posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> variables = assignments(users_environment());
  if (const int error = ::posix_spawnp(&pid_, words.front().c_str(), &files,
                                       &own_group, pointers_to(words).data(),
                                       pointers_to(variables).data());
      error != 0) {
    pid_ = -1;
    failure_ = cat(name_, " cannot be started: ", std::strerror(error));
  }
  posix_spawnattr_destroy(&own_group);
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  ::close(errors[1]);
  errors_ = std::thread([this, errors] { read_errors(errors[0]); });
}

PipedProgram::~PipedProgram() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
  finish();
}

void PipedProgram::read_errors(int descriptor) {
  FILE* const stream = ::fdopen(descriptor, "r");
  char line[512];
  while (std::fgets(line, sizeof line, stream) != nullptr) {
    bool is_error = false;
    const std::string message = message_of(line, is_error);
    if (on_error_line_) {
      on_error_line_(message);
      continue;
    }
    if (is_error) ++error_lines_;
    if (first_error_.empty() || (is_error && error_lines_ == 1)) {
      first_error_ = message;
    }
  }
  std::fclose(stream);
}

// If errno is EAGAIN, the socket's time limit has passed.
void PipedProgram::note_a_stall() {
  if (errno != EAGAIN || pid_ < 0) return;
  failure_ =
      cat(name_, " did nothing for ", patience_.count(), " s and was ended");
}

size_t PipedProgram::read(uint8_t* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::recv(pipe_, bytes + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) note_a_stall();
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

bool PipedProgram::write(const uint8_t* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t put = ::send(pipe_, bytes + done, size - done, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) note_a_stall();
    if (put < 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

size_t PipedProgram::exchange(uint8_t* bytes, size_t size, Unwritten& unwritten,
                              const std::function<bool()>& may_wait) {
  while (pid_ > 0 && may_wait()) {
    while (!unwritten.empty() && unwritten.front().empty()) {
      unwritten.pop_front();
    }
    const int wanted = unwritten.empty() ? POLLIN : POLLIN | POLLOUT;
    pollfd pipe{pipe_, static_cast<short>(wanted), 0};
    if (::poll(&pipe, 1, /*timeout=*/50) <= 0) continue;
    if ((pipe.revents & POLLOUT) != 0 && !unwritten.empty()) {
      auto& part = unwritten.front();
      const ssize_t put =
          ::send(pipe_, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put > 0) part = part.subspan(static_cast<size_t>(put));
    }
    const ssize_t got = ::recv(pipe_, bytes, size, MSG_DONTWAIT);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EAGAIN && errno != EINTR) return 0;  // it was killed
  }
  return 0;
}

// Returns whether the program ends within `time`. Does not collect the exit
// status, so that no other process group can get the program's number
// meanwhile.
bool PipedProgram::ends_within(std::chrono::seconds time) const {
  const auto limit = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < limit) {
    siginfo_t ended{};
    const auto pid = static_cast<id_t>(pid_);
    if (::waitid(P_PID, pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid != 0) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::string PipedProgram::finish() {
  if (pipe_ >= 0) ::close(pipe_);
  pipe_ = -1;
  if (pid_ > 0) {
    if (failure_.empty() && !ends_within(patience_)) {
      failure_ = cat(name_, " did not end within ", patience_.count(),
                     " s and was ended");
    }
    if (!failure_.empty()) {
      ::kill(-pid_, SIGTERM);
      ends_within(kGrace);
    }
    // This also ends the processes that the program has started. They may hold
    // its standard error open, which the thread reads to the end.
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  if (errors_.joinable()) errors_.join();
  std::string text = failure_;
  if (text.empty() && WIFSIGNALED(status_)) {
    text = cat(name_, " was ended by signal ", WTERMSIG(status_));
  } else if (text.empty() && WEXITSTATUS(status_) != 0) {
    text = cat(name_, " failed with code ", WEXITSTATUS(status_));
  }
  if (text.empty() || first_error_.empty()) return text;
  return cat(text, ": ", first_error_);
}

}  // namespace headroom
