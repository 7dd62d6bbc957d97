// TensorPort: the port that Gloo listens on, kept from strangers.
//
// Gloo itself asks nobody who he is, keeps every connection, and ends the
// process when it cannot take one. So:
// - a connection begins with the secret of the group that was made first, which
//   its rank 0 draws and the group's store carries; whatever begins otherwise
//   is closed before Gloo hears of it, and what says nothing is never accepted
//   (TCP_DEFER_ACCEPT);
// - between the moments at which groups connect nothing that arrives for the
//   port is even answered (a socket filter), where the system has such filters;
//   the port of a group that connects lazily stays open while the group lives;
// - a failure to accept lasts until the next connection.
//
// The secret is sent as it is: it keeps out who cannot read the network.
//
// Gloo offers no place for any of this. tensor_port.cpp defines accept() and
// connect() for the whole program in the place of the C library's; sockets
// that are not of a TensorPort behave as ever.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/base/key_value_store.h"

namespace headroom::collectives {

// The bytes of an address of 4 (IPv4) or 16 bytes (IPv6), then of a port, in
// the network's order.
using PortAddress = std::string;

class TensorPort {
 public:
  using Secret = std::array<char, 32>;
  struct GroupSecret {
    Secret bytes{};
    std::atomic<bool> has_ended = false;
  };

  // Finds the socket on which `listen` makes this process listen. It belongs to
  // Gloo, and is open as long as Gloo's device.
  // Throws Error if `listen` opened no such socket. Threads: any; the calls of
  // `listen` follow one another.
  explicit TensorPort(const std::function<void()>& listen);
  ~TensorPort();
  TensorPort(const TensorPort&) = delete;
  TensorPort& operator=(const TensorPort&) = delete;

  // Learns the secret and the ports of all `size` ranks through `store`, below
  // `prefix`. Returns each rank's address and port, as in a sockaddr.
  // Collective; throws what the store throws.
  std::vector<PortAddress> introduce(KeyValueStore& store,
                                     const std::string& prefix, int rank,
                                     int size,
                                     std::chrono::milliseconds timeout);

  // The same in two parts, for ranks that learn the secret and the addresses in
  // another way than from a store. From expect() on, who begins with the secret
  // is let in, so all ranks must have called it before any learns an address;
  // from admit() on this rank may connect to the others.
  void expect(const Secret& secret);
  void admit(const std::vector<PortAddress>& addresses) const;
  PortAddress own_address() const;
  // REQUIRES: introduce() or expect().
  const Secret& secret() const { return secret_->bytes; }

  // The port is open while one lives. Threads: any.
  class Opening {
   public:
    explicit Opening(TensorPort& port) : port_(port) { port_.change(1); }
    ~Opening() { port_.change(-1); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    TensorPort& port_;
  };

  // Ends the connections of the group that was introduced here, on this
  // side, and takes no more. REQUIRES: no other group has this port. Threads:
  // any.
  void end_group();

  // Ends all connections between ranks that this process has now, on this side:
  // what waits on one fails, and its peers are told where the network lets them
  // be. For whoever learns that a peer is lost behind a cable that was cut.
  // Threads: any.
  static void cut_connections();

 private:
  void change(int openings);

  std::mutex mutex_;
  int openings_ = 0;  // guarded by mutex_
  int socket_ = -1;
  ino_t inode_ = 0;  // the socket's, whose number may be given out again
  std::shared_ptr<GroupSecret> secret_;
};

}  // namespace headroom::collectives
