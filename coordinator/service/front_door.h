// FrontDoor: the coordinator's TCP port. Accepts connections, asks Connections
// whether they may be served, and passes them to gRPC.
//
// gRPC 1.51 could listen itself, but has no limit on connections, and closes
// its port for good when the process has no descriptor left. Nor does it limit
// the calls of a client that does not acknowledge the limit: without TLS, a
// connection waits here for that acknowledgement (greeting.h), at the cost of a
// descriptor.
//
// Threads: one of its own, which calls `serve` and `refused` and ends in stop()
// or the destructor.
// Errors: Error (exit 2) with the system's message if it cannot listen.
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
  // Called when a connection is refused or closed; `why` is a few words.
  using Refused = std::function<void(const std::string& why)>;

  struct Port {
    // Whether the port is shared with a process that reserves it (hold_address)
    // for later coordinators of the run, and whether that process has already
    // reserved it.
    bool shares_port = false;
    bool is_held = false;
    // Whether the bytes of a client are checked before gRPC gets the connection
    // (greeting.h). False with TLS: the client then has to show its certificate
    // before gRPC reads a request.
    bool reads_greetings = false;
    // The token that the client's first call must have; "" for none.
    std::string token = {};
  };

  // Listens at `address`, and sets the port in `address` to the port in use.
  // The other arguments must outlive this object.
  FrontDoor(ListenAddress& address, Connections& connections,
            const Clock& clock, Port port);
  ~FrontDoor() { stop(); }
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  void open(Serve serve, Refused refused);
  void stop();

 private:
  // A connection whose first bytes have not all arrived yet.
  struct Newcomer {
    int listener = -1;
    int descriptor = -1;
    std::string peer;
    // The client has greeted, and is served as soon as gRPC has room for it.
    bool is_welcome = false;
    // The client was sent a refusal. The connection is closed when the client
    // hangs up; if the client does not, sweep() shuts the connection down.
    bool is_refused = false;
  };

  void run();
  // Reads what a newcomer has sent, and serves or drops it if that is enough to
  // decide. Returns true if the newcomer must send more first.
  bool waits_after_look(Newcomer& newcomer);
  // Gives a welcome newcomer to gRPC; returns false if it must wait.
  bool serves(const Newcomer& newcomer);
  // Accepts a connection; returns false if no connection could be accepted.
  bool take_one(int listener);

  Connections& connections_;
  const Clock& clock_;
  const bool reads_greetings_;
  const std::string token_;
  std::vector<int> listeners_;
  std::vector<Newcomer> newcomers_;
  Serve serve_;
  Refused refused_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace headroom::coordinator
