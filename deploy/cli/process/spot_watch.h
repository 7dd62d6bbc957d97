// SpotWatch: a thread that asks a spot machine's metadata service every few
// seconds whether the machine will be taken away. A service that is absent or
// hangs delays nothing else.
//
//   PUT /latest/api/token                                   a token (IMDSv2)
//   GET /latest/meta-data/spot/instance-action              404: no notice
//   GET /latest/meta-data/events/recommendations/rebalance  404: no warning
//
// This machine's clock is never used, because it may be wrong: a notice counts
// from the moment it is seen.
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

namespace headroom::cli {

struct MetadataAnswer {
  int status = 0;  // 0 if no answer came in time
  std::string body = {};
};
// Sends a request ("GET /path") with one header line.
using AskMetadata = std::function<MetadataAnswer(const std::string& request,
                                                 const std::string& header)>;

// The result of one round of requests.
struct SpotNews {
  // Why this machine's workers must leave; "" if there is no notice.
  std::string notice = {};
  // A line for the user; set only the first time that there is a warning.
  std::string warning = {};
  bool is_answered = false;  // a metadata service answered
};

// Chooses the requests and interprets the answers.
class SpotPoll {
 public:
  // Calls `ask` at most five times, and only once if there is no answer.
  SpotNews advance(const AskMetadata& ask);

 private:
  bool take_token(const AskMetadata& ask);

  std::string token_;
  bool has_warned_ = false;
};

// Makes "spot notice: this machine is taken away at 12:34:56 UTC" from the JSON
// text of instance-action. Returns "" for any other text: a proxy or another
// cloud's service may answer every request.
std::string spot_reason(const std::string& instance_action);

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

  // Why this machine's workers must leave; "" while they may stay.
  std::string notice() const;

 private:
  void run(const std::stop_token& stop);

  const Options options_;
  mutable std::mutex mutex_;  // guards notice_
  std::condition_variable_any changed_;
  std::string notice_;
  std::jthread thread_;  // declared last: it uses the other members
};

// Whether the firmware identifies this machine as Amazon EC2. `dmi` is a folder
// like /sys/class/dmi/id.
bool is_amazon_machine(const std::filesystem::path& dmi);

// Throws Error (exit 2) unless `choice` is "auto", "off" or the address of a
// metadata service, http://ADDRESS[:PORT].
void require_spot_choice(const std::string& choice);

// The watch that `choice` asks for. "auto" watches on a machine of Amazon EC2.
// Returns nullptr if there is nothing to watch. Throws Error (exit 2) like
// require_spot_choice().
std::unique_ptr<SpotWatch> watch_spot(
    const std::string& choice, std::function<void(const std::string&)> print,
    const std::filesystem::path& dmi = "/sys/class/dmi/id");

}  // namespace headroom::cli
