// SpotWatch: a thread that asks a spot machine's metadata service every few
// seconds whether the machine will be taken away. A service that is absent or
// hangs delays nothing else.
//
// Threads: any thread may call notice(). The destructor takes at most a tenth
// of a second.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "deploy/cli/process/spot_notice.h"

namespace headroom::cli {

class SpotWatch {
 public:
  struct Options {
    sockaddr_in service{};
    // Time between two rounds of requests.
    std::chrono::milliseconds interval = std::chrono::seconds(5);
    // Time limit of one request.
    std::chrono::milliseconds limit = std::chrono::seconds(1);
    std::function<void(const std::string&)> print;
  };
  explicit SpotWatch(Options options);
  ~SpotWatch();
  SpotWatch(const SpotWatch&) = delete;
  SpotWatch& operator=(const SpotWatch&) = delete;

  // Why this machine's workers must leave; "" while they may stay.
  std::string notice() const;

 private:
  void run(const std::stop_token& stop);

  const Options options_;
  mutable std::mutex mutex_;  // guards notice_
  std::condition_variable_any changed_;
  std::string notice_;
  std::jthread thread_;  // last: it uses the other members
};

// Throws Error (exit 2) unless `choice` is "auto", "off" or the address of a
// metadata service, http://ADDRESS[:PORT].
void require_spot_choice(const std::string& choice);

// The watch that `choice` asks for. "auto" watches on a machine of Amazon EC2.
// Returns nullptr if there is nothing to watch. Throws as above.
std::unique_ptr<SpotWatch> watch_spot(
    const std::string& choice, std::function<void(const std::string&)> print,
    const std::filesystem::path& dmi = "/sys/class/dmi/id");

}  // namespace headroom::cli
