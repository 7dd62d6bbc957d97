// ListenAddress: the HOST:PORT at which a server listens.
#pragma once

#include <memory>
#include <string>

struct addrinfo;

namespace headroom::coordinator {

struct ListenAddress {
  std::string host;  // "::1" without its brackets
  int port = 0;      // 0: any free one
  std::string to_string() const;
};

// Throws Error (exit 2) naming what is wrong with `text`.
ListenAddress parse_listen_address(const std::string& text);

// Returns the system's reason why the address cannot be listened on now, for
// example "Address already in use"; "" if it can.
std::string binding_error(const ListenAddress& address);

struct FreeAddresses {
  void operator()(addrinfo* found) const;
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// The system's addresses to listen on; null with the reason in `why`.
Addresses resolved(const ListenAddress& address, std::string* why);

// A descriptor that reserves the address of a server that shares its port, for
// the server's successors: nothing is accepted on it. -1 where the system
// refuses.
int hold_address(const ListenAddress& address);

}  // namespace headroom::coordinator
