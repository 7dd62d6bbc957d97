// SpotPoll: what a spot machine's metadata service says of the machine's end.
// It decides what is asked next and what an answer means; who calls it does the
// asking.
//
//   PUT /latest/api/token                                   a token (IMDSv2)
//   GET /latest/meta-data/spot/instance-action              404: no notice
//   GET /latest/meta-data/events/recommendations/rebalance  404: no warning
//
// No decision looks at this machine's clock, which may be wrong: a notice
// counts from when it is seen.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace headroom::cli {

struct MetadataRequest {
  std::string method;  // "GET" or "PUT"
  std::string path;
  std::string header;  // one line, without its end
};

struct MetadataAnswer {
  int status = 0;  // 0: there was no answer in time
  std::string body = {};
};

using AskMetadata = std::function<MetadataAnswer(const MetadataRequest&)>;

// What one round of questions found.
struct SpotNews {
  // Why this machine's workers have to leave; "": there is no notice.
  std::string notice = {};
  // A line for people, the first time that there is one to say.
  std::string warning = {};
  bool is_answered = false;  // a metadata service did
};

class SpotPoll {
 public:
  // Calls `ask` four times at most, and once where nobody answers.
  SpotNews advance(const AskMetadata& ask);

 private:
  MetadataAnswer get(const std::string& path, const AskMetadata& ask);
  bool take_token(const AskMetadata& ask);

  std::string token_;
  bool has_warned_ = false;
};

// "spot notice: this machine is taken away at 12:34:56 UTC", from the JSON text
// of instance-action. A text that cannot be read is a notice without a time:
// AWS sends one only to a machine that ends.
std::string spot_reason(const std::string& instance_action);

// Whether this is a machine of Amazon EC2 by what its firmware says. `dmi` is a
// folder like /sys/class/dmi/id.
bool is_amazon_machine(const std::filesystem::path& dmi);

}  // namespace headroom::cli
