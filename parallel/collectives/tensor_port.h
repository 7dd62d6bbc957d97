// TensorPort: where the other ranks of a run connect to this one: a TCP port,
// or a Unix socket in a folder that only the run's processes can enter.
//
// A connection begins with a greeting: the secret of the generation, which its
// rank 0 draws and the run's store carries, and which rank of which group
// connects for what. The port answers with one byte and hands the connection to
// the group. What begins otherwise is closed at once, and on TCP a connection
// that sends nothing is not accepted at all (TCP_DEFER_ACCEPT). While no group
// connects, the system drops what arrives for the port (a socket filter).
//
// The secret is sent as it is: it keeps out whoever cannot read the network.
//
// Threads: any; one of its own accepts connections.
// Errors: Error (exit 2) where the host cannot be listened at.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "parallel/base/key_value_store.h"

namespace headroom::collectives {

// A connected, non-blocking socket. Closed by its destructor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// What a connection between two ranks of a group is for.
enum class Channel : uint32_t { kCollectives, kMessages };

class TensorPort {
 public:
  // Listens at `host`, a name or an address of this machine, or the absolute
  // path of a folder.
  explicit TensorPort(const std::string& host);
  ~TensorPort();
  TensorPort(const TensorPort&) = delete;
  TensorPort& operator=(const TensorPort&) = delete;

  // Learns the secret and the addresses of all `size` ranks through `store`,
  // below `prefix`. Collective; throws what the store throws.
  void introduce(KeyValueStore& store, const std::string& prefix, int rank,
                 int size, std::chrono::milliseconds timeout);

  // Connects to a rank of the store's numbering and sends the greeting; the
  // answer is still to come. Tries until `is_over` returns true, which is asked
  // some 20 times a second; then the socket is not open. Throws
  // CommunicationError where that rank listens no more.
  // REQUIRES: introduce().
  Socket connect(int world_rank, uint64_t group, int own_rank, Channel channel,
                 const std::function<bool()>& is_over) const;
  // Waits for the answer likewise. Returns false where the other side has hung
  // up: it is no rank of this run, or has left the group.
  static bool is_welcome(const Socket& socket,
                         const std::function<bool()>& is_over);

  // Hands the connections of `group` to `take`, also those that came before;
  // it is called with the port's mutex held. leave() ends that.
  using Take = std::function<void(int rank, Channel channel, Socket socket)>;
  void attach(uint64_t group, Take take);
  void leave(uint64_t group);

  // The port is open while one lives.
  class Opening {
   public:
    explicit Opening(TensorPort& port) : port_(port) { port_.change(1); }
    ~Opening() { port_.change(-1); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    TensorPort& port_;
  };

 private:
  using Secret = std::array<char, 32>;
  struct Greeting;
  void change(int openings);
  void accept_all();
  void accept_one();
  Greeting greeting(uint64_t group, int rank, Channel channel) const;

  Socket listener_;
  Socket wake_;  // an eventfd
  std::string address_;
  std::string path_;                    // of a Unix socket
  std::vector<std::string> addresses_;  // by rank, since introduce()
  mutable std::mutex mutex_;            // guards the following
  int openings_ = 0;
  bool is_introduced_ = false;
  bool is_ending_ = false;
  Secret secret_{};
  std::map<uint64_t, Take> groups_;
  std::set<uint64_t> left_;
  std::map<uint64_t, std::vector<std::tuple<int, Channel, Socket>>> early_;
  std::thread thread_;
};

}  // namespace headroom::collectives
