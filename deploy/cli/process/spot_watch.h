// SpotWatch: asks a spot machine's metadata service every few seconds, on a
// thread of its own, whether the machine is about to be taken away. A service
// that is absent or hangs costs nobody anything.
//
// Threads: any thread may call notice(). Destroying it takes a tenth of a
// second at most.
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
    // Time from one round of questions to the next.
    std::chrono::milliseconds interval = std::chrono::seconds(5);
    // Time limit of one question.
    std::chrono::milliseconds limit = std::chrono::seconds(1);
    std::function<void(const std::string&)> print;
  };
  explicit SpotWatch(Options options);
  ~SpotWatch();
  SpotWatch(const SpotWatch&) = delete;
  SpotWatch& operator=(const SpotWatch&) = delete;

  // Why this machine's workers have to leave; "" while they may stay.
  std::string notice() const;

 private:
  void run(const std::stop_token& stop);

  const Options options_;
  mutable std::mutex mutex_;  // guards what is found
  std::condition_variable_any changed_;
  std::string notice_;
  std::jthread thread_;  // last: it uses the others
};

// Throws Error (exit 2) unless `choice` is "auto", "off" or the address of a
// metadata service, http://ADDRESS[:PORT].
void require_spot_choice(const std::string& choice);

// The watch that `choice` asks for; "auto" does on a machine of Amazon EC2.
// Null where nobody is asked. Throws as require_spot_choice() does.
std::unique_ptr<SpotWatch> watch_spot(
    const std::string& choice, std::function<void(const std::string&)> print,
    const std::filesystem::path& dmi = "/sys/class/dmi/id");

}  // namespace headroom::cli
