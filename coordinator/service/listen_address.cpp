#include "coordinator/service/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

Error bad_address(const std::string& text, const std::string& why) {
  return Error("coordinator", "listen address '" + text + "' " + why,
               "write HOST:PORT, for example 127.0.0.1:29400, or port 0 for "
               "any free one");
}

}  // namespace

std::string ListenAddress::to_string() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return cat(ipv6 ? "[" + host + "]" : host, ":", port);
}

ListenAddress parse_listen_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw bad_address(text, "has no port");
  ListenAddress address;
  address.host = text.substr(0, colon);
  if (address.host.size() > 1 && address.host.front() == '[' &&
      address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    throw bad_address(text, "has an IPv6 host without brackets");
  }
  if (address.host.empty()) throw bad_address(text, "has no host");
  const auto port = parse_whole(text.substr(colon + 1), 0, 65535);
  if (!port) throw bad_address(text, "has no port from 0 to 65535");
  address.port = static_cast<int>(*port);
  return address;
}

void FreeAddresses::operator()(addrinfo* found) const { freeaddrinfo(found); }

Addresses resolved(const ListenAddress& address, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                  &hints, &found);
  if (failure != 0) *why = gai_strerror(failure);
  return Addresses(failure == 0 ? found : nullptr);
}

int hold_address(const ListenAddress& address) {
  std::string why;
  const Addresses found = resolved(address, &why);
  if (!found) return -1;
  const int handle = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (handle >= 0 &&
      (setsockopt(handle, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
       bind(handle, found->ai_addr, found->ai_addrlen) != 0)) {
    close(handle);
    return -1;
  }
  return handle;
}

std::string binding_error(const ListenAddress& address) {
  std::string why;
  const Addresses found = resolved(address, &why);
  if (!found) return why;
  const int handle = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  // Allows a port in TIME_WAIT, like gRPC.
  if (handle < 0 ||
      setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(handle, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(handle, 1) != 0) {
    why = std::strerror(errno);
  }
  if (handle >= 0) close(handle);
  return why;
}

}  // namespace headroom::coordinator
