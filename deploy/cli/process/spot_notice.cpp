#include "deploy/cli/process/spot_notice.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

constexpr int kFound = 200;
constexpr int kUnauthorized = 401;
constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kActionPath = "/latest/meta-data/spot/instance-action";
constexpr const char* kRebalancePath =
    "/latest/meta-data/events/recommendations/rebalance";
// The longest time for which the service gives a token.
constexpr const char* kTokenSeconds =
    "X-aws-ec2-metadata-token-ttl-seconds: 21600";

std::string field_of(const nlohmann::json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string()
             ? short_line(field->get<std::string>(), 40)
             : "";
}

// "2026-11-26T12:34:56Z" -> "12:34:56 UTC"; another text is not changed.
std::string time_of_day(const std::string& time) {
  constexpr size_t kDate = 11, kClock = 8;
  const bool is_usual = time.size() == kDate + kClock + 1 && time[10] == 'T' &&
                        time.back() == 'Z';
  return is_usual ? time.substr(kDate, kClock) + " UTC" : time;
}

// The token is sent in a header: it must be printable ASCII of limited length.
bool is_token(const std::string& text) {
  constexpr size_t kLongest = 1024;
  return !text.empty() && text.size() <= kLongest &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

std::string lower_first_line(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  for (char& c : line) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return line;
}

}  // namespace

bool SpotPoll::take_token(const AskMetadata& ask) {
  const MetadataAnswer answer = ask({"PUT", kTokenPath, kTokenSeconds});
  token_ = answer.status == kFound && is_token(answer.body) ? answer.body : "";
  return !token_.empty();
}

MetadataAnswer SpotPoll::get(const std::string& path, const AskMetadata& ask) {
  return ask({"GET", path, "X-aws-ec2-metadata-token: " + token_});
}

SpotNews SpotPoll::advance(const AskMetadata& ask) {
  SpotNews news;
  if (token_.empty() && !take_token(ask)) return news;
  MetadataAnswer action = get(kActionPath, ask);
  if (action.status == kUnauthorized) {  // the token has ended
    if (!take_token(ask)) return news;
    action = get(kActionPath, ask);
  }
  news.is_answered = action.status != 0;
  if (action.status == kFound) {
    news.notice = spot_reason(action.body);
    return news;
  }
  if (!news.is_answered || has_warned_) return news;
  if (get(kRebalancePath, ask).status == kFound) {
    has_warned_ = true;
    news.warning =
        "warning: AWS may take this spot machine away soon (a rebalance "
        "recommendation); the run goes on until it does";
  }
  return news;
}

std::string spot_reason(const std::string& instance_action) {
  const auto json = nlohmann::json::parse(instance_action, nullptr, false);
  const bool is_object = json.is_object();
  const std::string action = is_object ? field_of(json, "action") : "";
  const std::string time = is_object ? time_of_day(field_of(json, "time")) : "";
  const std::string end = action == "stop"        ? "stopped"
                          : action == "hibernate" ? "hibernated"
                                                  : "taken away";
  return "spot notice: this machine is " + end +
         (time.empty() ? " within two minutes" : " at " + time);
}

bool is_amazon_machine(const std::filesystem::path& dmi) {
  for (const char* name : {"sys_vendor", "board_vendor", "bios_vendor"}) {
    if (lower_first_line(dmi / name).starts_with("amazon ec2")) return true;
  }
  // Older machines have it here, readable by root only.
  return lower_first_line(dmi / "product_uuid").starts_with("ec2");
}

}  // namespace headroom::cli
