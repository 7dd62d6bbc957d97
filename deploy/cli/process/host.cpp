#include "deploy/cli/process/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/text.h"
#include "parallel/machine/machine_limits.h"
#include "proto/channel_security.h"

namespace headroom::cli {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, const char* port, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port, &hints, &found) != 0) found = nullptr;
  return AddressList(found, &freeaddrinfo);
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

int usable_cores() { return static_cast<int>(read_machine_limits().cores); }

std::string host_address() {
  const AddressList named = resolve(this_host_name(), nullptr, AF_INET);
  for (const addrinfo* a = named.get(); a != nullptr; a = a->ai_next) {
    const std::string text = text_of(a->ai_addr, a->ai_addrlen);
    if (!wire::is_loopback(text)) return text;
  }
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces,
                                                           &freeifaddrs);
    for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET ||
          (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) {
        continue;
      }
      return text_of(i->ifa_addr, sizeof(sockaddr_in));
    }
  }
  throw Error("network", "this host has no address that others could reach",
              "name one: --coordinator HOST:PORT");
}

bool resolves(const std::string& host) {
  return resolve(host, nullptr, AF_UNSPEC) != nullptr;
}

std::string loopback_address_of(const std::string& host) {
  // A user who writes localhost means this machine: all tasks may run on it.
  if (wire::is_loopback(host)) return "";
  const AddressList found = resolve(host, nullptr, AF_UNSPEC);
  if (found == nullptr) return "";
  const std::string text = text_of(found->ai_addr, found->ai_addrlen);
  return wire::is_loopback(text) ? text : "";
}

std::string address_towards(const std::string& host_and_port) {
  if (wire::is_unix_socket(host_and_port)) return "127.0.0.1";
  const std::string host = host_of(host_and_port, "--coordinator");
  const std::string port = host_and_port.substr(host_and_port.rfind(':') + 1);
  const AddressList targets = resolve(host, port.c_str(), AF_UNSPEC);
  for (const addrinfo* a = targets.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    // connect() on a datagram socket sends nothing; it only chooses the route.
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    auto* local_address = reinterpret_cast<sockaddr*>(&local);
    const bool routed = connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                        getsockname(fd, local_address, &size) == 0;
    close(fd);
    if (routed) return text_of(local_address, size);
  }
  throw Error("network", "there is no way from this host to " + host_and_port,
              wire::is_loopback(host)
                  ? "the machine's own interface is down or lacks this "
                    "address: ip link set lo up"
                  : "check the name and the network",
              ExitCode::kResource);
}

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::string host_of(const std::string& host_and_port, const std::string& flag) {
  if (wire::is_unix_socket(host_and_port)) return "localhost";
  const size_t colon = host_and_port.rfind(':');
  const bool has_both = colon != std::string::npos && colon > 0;
  if (!has_both || !parse_whole(host_and_port.substr(colon + 1), 0, 65535)) {
    throw Error("network", flag + " " + host_and_port + " is no address",
                "write HOST:PORT, for example 10.0.0.5:29500");
  }
  std::string host = host_and_port.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

}  // namespace headroom::cli
