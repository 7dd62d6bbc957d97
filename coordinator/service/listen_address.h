// ListenAddress: the HOST:PORT at which a server listens.
#pragma once

#include <memory>
#include <string>

struct addrinfo;

namespace headroom::coordinator {

struct ListenAddress {
  std::string host;  // "::1" without its brackets
  int port = 0;      // 0 takes any free port
  std::string to_string() const;
};

// Throws Error (exit 2) that explains the fault of `text`.
ListenAddress parse_listen_address(const std::string& text);

// The system's error message if a server cannot listen at the address now
// ("Address already in use"); "" if it can.
std::string binding_error(const ListenAddress& address);

struct FreeAddresses {
  void operator()(addrinfo* found) const;
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Resolves the address to the socket addresses on which to listen; null, with
// `why` set, on failure.
Addresses resolved(const ListenAddress& address, std::string* why);

// Returns a descriptor that reserves the address for servers that share the
// port; it accepts no connections. -1 if the system refuses.
int hold_address(const ListenAddress& address);

}  // namespace headroom::coordinator
