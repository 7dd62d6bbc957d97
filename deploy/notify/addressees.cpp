#include "deploy/notify/addressees.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "proto/channel_security.h"

namespace headroom::notify {
namespace {

constexpr const char* kUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kAuthority = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
constexpr const char* kToken = "KUBEFLOW_TRAINER_SERVER_TOKEN";

Error refused(const std::string& flag, const std::string& what) {
  return Error("command line", flag + ": " + what,
               "write https://HOST[:PORT][/PATH], or http:// on this machine");
}

Error refused_trainjob(const std::string& what) {
  return Error(
      "trainjob", what,
      cat("see what Kubeflow Trainer gives its pods, or unset ", kUrl));
}

bool has_odd_character(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c <= ' ' || c >= 0x7f; });
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

void check_credentials(const WebAddress& address) {
  constexpr const char* kMlflowToken = "MLFLOW_TRACKING_TOKEN";
  constexpr const char* kName = "MLFLOW_TRACKING_USERNAME";
  const std::string token = environment(kMlflowToken);
  if (token.empty() && environment(kName).empty()) return;
  const std::string variable = token.empty() ? kName : kMlflowToken;
  if (!address.is_encrypted && !address.is_loopback()) {
    throw Error("mlflow",
                variable + " is set, but " + address.shown() +
                    " is plain HTTP, which everybody on the way can read",
                "give an https:// address, or unset " + variable);
  }
  if (has_odd_character(token)) {
    throw Error("mlflow", variable + " has a character that no token may have",
                "look for a space or a line feed at its end");
  }
}

}  // namespace

std::string WebAddress::shown() const {
  const int usual = is_encrypted ? 443 : 80;
  return cat(is_encrypted ? "https://" : "http://", url_host(),
             port == usual ? "" : cat(":", port));
}

std::string WebAddress::url_host() const {
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

bool WebAddress::is_loopback() const { return wire::is_loopback(host); }

WebAddress parse_web_address(const std::string& flag, const std::string& text) {
  WebAddress address;
  std::string rest;
  if (text.starts_with("https://")) {
    address.is_encrypted = true;
    rest = text.substr(8);
  } else if (text.starts_with("http://")) {
    rest = text.substr(7);
  } else {
    throw refused(flag, "the address begins with neither https:// nor http://");
  }
  if (has_odd_character(text)) {
    throw refused(flag, "the address has a character that none may have");
  }
  const size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  address.path = rest.substr(slash);
  std::string host = rest.substr(0, slash);
  if (host.find('@') != std::string::npos) {
    throw refused(flag,
                  "an address with a name or password in it is kept nowhere "
                  "secret");
  }
  address.port = address.is_encrypted ? 443 : 80;
  const size_t colon =
      host.find(':', host.starts_with('[') ? host.rfind(']') : 0);
  if (colon != std::string::npos) {
    const auto port = parse_whole(host.substr(colon + 1), 1, 65535);
    if (!port) throw refused(flag, "the address's port is no port");
    address.port = static_cast<int>(*port);
    host.resize(colon);
  }
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  in6_addr ignored;
  if (has_brackets ? inet_pton(AF_INET6, host.c_str(), &ignored) != 1
                   : host.find_first_of("[]") != std::string::npos) {
    throw refused(flag, "the address's brackets enclose no IPv6 address");
  }
  if (host.empty()) throw refused(flag, "the address has no host");
  address.host = host;
  return address;
}

WebAddress parse_mlflow_address(const std::string& text) {
  WebAddress address = parse_web_address("--mlflow", text);
  if (address.path.find_first_of("?#") != std::string::npos) {
    throw Error("command line",
                "--mlflow: the address has a '?' or '#', which MLflow's "
                "interface cannot stand behind",
                "give the address of the server alone");
  }
  while (address.path.ends_with('/')) address.path.pop_back();
  check_credentials(address);
  return address;
}

std::optional<TrainJobServer> trainjob_server() {
  const std::string url = environment(kUrl);
  if (url.empty()) return std::nullopt;
  TrainJobServer server{.address = parse_web_address(kUrl, url),
                        .authority = environment(kAuthority),
                        .token = environment(kToken)};
  if (!server.address.is_encrypted && !server.address.is_loopback()) {
    throw refused_trainjob(
        cat(kUrl, " is plain HTTP, which everybody on the way can read"));
  }
  if (server.token.empty()) {
    throw refused_trainjob(cat(kToken, " is not set"));
  }
  if (server.address.is_encrypted && server.authority.empty()) {
    throw refused_trainjob(cat(kAuthority, " is not set"));
  }
  return server;
}

}  // namespace headroom::notify
