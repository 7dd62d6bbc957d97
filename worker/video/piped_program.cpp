#include "worker/video/piped_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "parallel/base/environment.h"
#include "parallel/base/text.h"

namespace headroom::video {
namespace {

// "[mjpeg @ 0x55a219] overread 8\n" -> "[mjpeg] overread 8".
std::string message_of(std::string line) {
  line.erase(line.find_last_not_of(" \r\n") + 1);
  for (size_t at; (at = line.find(" @ 0x")) != line.npos;) {
    line.erase(at, line.find(']', at) - at);
  }
  return line;
}

}  // namespace

PipedProgram::PipedProgram(std::vector<std::string> words,
                           std::chrono::seconds patience)
    : name_(words.front()), patience_(patience) {
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
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, errors) != 0) {
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
  error_stream_ = ::fdopen(errors[0], "r");
  errors_ = std::thread([this] { read_errors(); });
}

PipedProgram::~PipedProgram() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
  finish();
}

void PipedProgram::read_errors() {
  char line[512];
  while (std::fgets(line, sizeof line, error_stream_) != nullptr) {
    const std::string message = message_of(line);
    if (!message.empty() && ++error_lines_ == 1) first_error_ = message;
  }
}

// If errno is EAGAIN, the socket's time limit has passed.
void PipedProgram::end_if_it_stalls() {
  if (errno == EAGAIN && pid_ >= 0) end_stalled();
}

void PipedProgram::end_stalled() {
  failure_ =
      cat(name_, " did nothing for ", patience_.count(), " s and was ended");
  ::kill(pid_, SIGKILL);
}

size_t PipedProgram::read(uint8_t* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::recv(pipe_, bytes + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) end_if_it_stalls();
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
    if (put < 0) end_if_it_stalls();
    if (put < 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

std::string PipedProgram::finish() {
  if (pipe_ >= 0) ::close(pipe_);
  pipe_ = -1;
  using Clock = std::chrono::steady_clock;
  Clock::time_point end = Clock::now() + patience_;
  while (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (Clock::now() < end) continue;
    end_stalled();
    end += patience_;
  }
  pid_ = -1;
  if (error_stream_ != nullptr) {
    // Ends the reader also if a process that the program has left behind holds
    // the other end.
    ::shutdown(::fileno(error_stream_), SHUT_RD);
    errors_.join();
    std::fclose(std::exchange(error_stream_, nullptr));
  }
  std::string text = failure_;
  if (text.empty() && WIFSIGNALED(status_)) {
    text = cat(name_, " was ended by signal ", WTERMSIG(status_));
  } else if (text.empty() && WEXITSTATUS(status_) != 0) {
    text = cat(name_, " failed with code ", WEXITSTATUS(status_));
  }
  if (text.empty() || first_error_.empty()) return text;
  return cat(text, ": ", first_error_);
}

}  // namespace headroom::video
