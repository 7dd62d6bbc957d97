// SpotPoll: asks a spot machine's metadata service whether the machine will be
// taken away. This class decides what to ask next and interprets the answer;
// the caller sends the requests.
//
//   PUT /latest/api/token                                   a token (IMDSv2)
//   GET /latest/meta-data/spot/instance-action              404: no notice
//   GET /latest/meta-data/events/recommendations/rebalance  404: no warning
//
// This machine's clock is never used, because it may be wrong: a notice counts
// from the moment it is seen.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace headroom::cli {

struct MetadataRequest {
  std::string method;  // "GET" or "PUT"
  std::string path;
  std::string header;  // one line, without its line end
};

struct MetadataAnswer {
  int status = 0;  // 0 if no answer came in time
  std::string body = {};
};

using AskMetadata = std::function<MetadataAnswer(const MetadataRequest&)>;

// The result of one round of requests.
struct SpotNews {
  // Why this machine's workers must leave; "" if there is no notice.
  std::string notice = {};
  // A line for people; set only the first time that there is a warning.
  std::string warning = {};
  bool is_answered = false;  // a metadata service answered
};

class SpotPoll {
 public:
  // Calls `ask` at most four times, and once if there is no answer.
  SpotNews advance(const AskMetadata& ask);

 private:
  MetadataAnswer get(const std::string& path, const AskMetadata& ask);
  bool take_token(const AskMetadata& ask);

  std::string token_;
  bool has_warned_ = false;
};

// Makes "spot notice: this machine is taken away at 12:34:56 UTC" from the JSON
// text of instance-action. A text that cannot be parsed counts as a notice
// without a time: AWS sends the document only to a machine that will end.
std::string spot_reason(const std::string& instance_action);

// Whether the firmware identifies this machine as Amazon EC2. `dmi` is a folder
// like /sys/class/dmi/id.
bool is_amazon_machine(const std::filesystem::path& dmi);

}  // namespace headroom::cli
