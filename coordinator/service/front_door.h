// FrontDoor: the coordinator's TCP port. Accepts connections, asks Connections
// whether they may be served, and passes them to gRPC.
//
// gRPC 1.51 could listen itself, but bounds no number of connections, and
// closes its port for good when the process has no descriptor left.
//
// Threads: one of its own, which calls `serve` and `refused`; it ends with the
// destructor or stop().
// Errors: Error (exit 2) in the system's words if the address cannot be
// listened on.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/service/connections.h"
#include "coordinator/service/listen_address.h"

namespace headroom::coordinator {

class FrontDoor {
 public:
  // Takes over a connected descriptor.
  using Serve = std::function<void(int listener, int descriptor)>;
  // A connection was refused or ended; `why` is a few words.
  using Refused = std::function<void(const std::string& why)>;

  // Whether the port is shared with who holds it (hold_address) for later
  // coordinators of this run, and whether it is held already.
  struct Port {
    bool shares_port = false;
    bool is_held = false;
  };

  // Listens at `address`, whose port becomes the one in use. The others must
  // outlive the door.
  FrontDoor(ListenAddress& address, Connections& connections,
            const Clock& clock, Port port);
  ~FrontDoor() { stop(); }
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  void open(Serve serve, Refused refused);
  void stop();

 private:
  void run();
  // Returns false when no connection waits any more.
  bool take_one(int listener);
  void spend_the_reserve(int listener);

  Connections& connections_;
  const Clock& clock_;
  std::vector<int> listeners_;
  int reserve_ = -1;  // a descriptor for where they have run out
  Serve serve_;
  Refused refused_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace headroom::coordinator
