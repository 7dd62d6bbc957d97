#include "proto/channel_security.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>

#include "parallel/base/check.h"

namespace headroom::wire {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file, bool is_secret) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.empty()) {
    throw Error("security", file.string() + " is not there, or empty",
                "headroom coordinator --init-certs DIR makes it");
  }
  struct stat about {};
  // A file owned by root may be readable by its group, because Kubernetes
  // mounts secrets with this mode.
  const auto others = [&] {
    return S_IRWXO | (about.st_uid == 0 ? S_IWGRP | S_IXGRP : S_IRWXG);
  };
  if (is_secret && ::stat(file.c_str(), &about) == 0 &&
      (about.st_mode & others()) != 0) {
    throw Error("security", file.string() + " can be read by others",
                "chmod 600 " + file.string());
  }
  return text;
}

std::string checked_token(std::string token, const std::string& source) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') {
    token.pop_back();
  }
  constexpr size_t kMinToken = 16, kMaxToken = 1024;
  const auto is_printable = [](const std::string& text) {
    for (const char c : text) {
      if (c <= ' ' || c > '~') return false;
    }
    return true;
  };
  if (token.size() < kMinToken || token.size() > kMaxToken ||
      !is_printable(token)) {
    throw Error("security",
                source +
                    " holds no token of 16 to 1024 printable "
                    "characters without blanks",
                "openssl rand -hex 32 makes one");
  }
  return token;
}

std::string token_of(const fs::path& file) {
  return checked_token(text_of(file, /*is_secret=*/true), file.string());
}

}  // namespace

std::string draw_token() {
  unsigned char bytes[32];
  HEADROOM_CHECK(getentropy(bytes, sizeof(bytes)) == 0, "random bytes");
  std::string token;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    token += digits;
  }
  return token;
}

ChannelSecurity read_channel_security(const std::string& certs,
                                      const std::string& token_file,
                                      ChannelSide side) {
  ChannelSecurity security;
  if (!certs.empty()) {
    const fs::path folder = certs;
    const std::string name = side == ChannelSide::kServer ? "server" : "client";
    security.ca = text_of(folder / "ca.pem", false);
    security.certificate = text_of(folder / (name + ".pem"), false);
    security.key = text_of(folder / (name + ".key"), true);
    if (token_file.empty() && fs::exists(folder / "token")) {
      security.token = token_of(folder / "token");
    }
  }
  if (!token_file.empty()) security.token = token_of(token_file);
  const char* const inherited = std::getenv(kTokenVariable);
  if (security.token.empty() && inherited != nullptr) {
    security.token = checked_token(inherited, kTokenVariable);
  }
  return security;
}

namespace {
std::mutex identity_mutex;
ChannelSecurity identity;
}  // namespace

void set_channel_security(const ChannelSecurity& security) {
  std::lock_guard lock(identity_mutex);
  identity = security;
}

ChannelSecurity channel_security() {
  std::lock_guard lock(identity_mutex);
  return identity;
}

bool is_unix_socket(const std::string& address) {
  return address.starts_with(kUnixPrefix);
}

std::string unix_folder_of(const std::string& address) {
  if (!is_unix_socket(address)) return "";
  const fs::path socket = address.substr(std::string_view(kUnixPrefix).size());
  return socket.parent_path().string();
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr ipv4{};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) {
    return (ntohl(ipv4.s_addr) >> 24) == 127;
  }
  in6_addr ipv6{};
  return inet_pton(AF_INET6, host.c_str(), &ipv6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&ipv6);
}

void require_protected(const std::string& address,
                       const ChannelSecurity& security, bool insecure_network) {
  if (is_unix_socket(address)) return;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  const bool is_protected = security.is_encrypted() && !security.token.empty();
  if (is_loopback(host) || is_protected || insecure_network) return;
  const std::string missing = security.is_encrypted() ? "there is no token"
                              : security.token.empty()
                                  ? "there is neither"
                                  : "there are no certificates";
  throw Error("network",
              address +
                  " is beyond loopback, where control traffic must have TLS "
                  "and a join token, and " +
                  missing,
              security.is_encrypted()
                  ? "put one into the folder of --certs as 'token', or give "
                    "--token-file FILE"
                  : "give --certs DIR (headroom coordinator --init-certs DIR "
                    "makes it), or allow plain text with --insecure-network on "
                    "a private network");
}

void keep_openssl_to_the_end() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

bool equal_secrets(const std::string& given, const std::string& known) {
  unsigned char difference = given.size() == known.size() ? 0 : 1;
  for (size_t i = 0; i < known.size(); ++i) {
    const unsigned char other =
        i < given.size() ? static_cast<unsigned char>(given[i]) : 0;
    difference |= static_cast<unsigned char>(
        other ^ static_cast<unsigned char>(known[i]));
  }
  return difference == 0;
}

}  // namespace headroom::wire
