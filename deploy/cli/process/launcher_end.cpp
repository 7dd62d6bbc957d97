#include "deploy/cli/process/launcher_end.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(50);

struct Address {
  sockaddr_un value{};
  socklen_t size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&value);
  }
};

// A name with a leading zero byte is in Linux's abstract namespace: no file.
Address address_of(const LauncherJob& job) {
  const std::string name = cat("headroom-verdict-", geteuid(), "-",
                               std::hash<std::string>{}(job.local_key));
  Address address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int new_socket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  HEADROOM_CHECK(fd >= 0, "out of file descriptors");
  return fd;
}

// Whether the peer has this process's user: every user of this machine may bind
// or connect to the name.
bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

Error no_agent(const std::string& what) {
  return Error("launcher",
               "local rank 0, whose agent this process waits for, " + what,
               "see what local rank 0 says", ExitCode::kResource);
}

class Connection {
 public:
  explicit Connection(const LauncherJob& job) : fd_(new_socket()) {
    const Address address = address_of(job);
    is_there_ =
        connect(fd_, address.get(), address.size) == 0 && is_own_user(fd_);
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_there() const { return is_there_; }

  int wait() const {
    const interrupts::Watch watch;
    while (interrupts::count() < 2) {
      pollfd event{fd_, POLLIN, 0};
      if (poll(&event, 1, -1) < 0) continue;  // a signal interrupted poll()
      unsigned char exit_code = 0;
      if (read(fd_, &exit_code, 1) == 1) return exit_code;
      throw no_agent("was killed");
    }
    return static_cast<int>(ExitCode::kInterrupted);
  }

 private:
  int fd_;
  bool is_there_ = false;
};

}  // namespace

std::string torchelastic_error(const std::string& reason,
                               std::chrono::system_clock::time_point at) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch());
  const nlohmann::ordered_json error = {
      {"message",
       {{"message", reason},
        {"extraInfo", {{"timestamp", std::to_string(seconds.count())}}}}}};
  return error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void leave_failure(const LauncherJob& job, const std::string& reason) noexcept {
  if (job.error_file.empty()) return;
  try {
    std::ofstream out(job.error_file);
    out << (job.launcher->error_form == ErrorFile::kTorchelastic
                ? torchelastic_error(reason, std::chrono::system_clock::now())
                : reason)
        << "\n";
  } catch (const std::exception&) {
  }
}

LocalVerdict::LocalVerdict(const LauncherJob& job)
    : socket_(new_socket()), others_(job.local_workers - 1) {
  const Address address = address_of(job);
  if (bind(socket_, address.get(), address.size) == 0 &&
      listen(socket_, others_) == 0) {
    return;
  }
  const std::string why = strerror(errno);
  close(socket_);
  throw Error("launcher",
              std::string(job.launcher->name) +
                  " has started another local rank 0 on this machine with the "
                  "same rank, address and port (" +
                  why + ")",
              "give each job a port of its own", ExitCode::kResource);
}

LocalVerdict::~LocalVerdict() { close(socket_); }

void LocalVerdict::tell(int exit_code, std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  for (int told = 0; told < others_;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd event{socket_, POLLIN, 0};
    if (poll(&event, 1, std::max(0, static_cast<int>(left.count()))) <= 0) {
      return;
    }
    const int other = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (other < 0) return;
    if (is_own_user(other)) {
      const auto code = static_cast<unsigned char>(exit_code);
      send(other, &code, 1, MSG_NOSIGNAL);
      ++told;
    }
    close(other);
  }
}

int wait_for_verdict(const LauncherJob& job,
                     std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  do {
    const Connection agent(job);
    if (agent.is_there()) return agent.wait();
    std::this_thread::sleep_for(kPause);
  } while (Clock::now() < end);
  throw no_agent(cat("did not start within ", patience.count() / 1000, " s"));
}

}  // namespace headroom::cli
