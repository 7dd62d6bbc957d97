// TensorPort: the port to which the other ranks of a run connect: a TCP port,
// or a Unix socket in a folder that only the run's processes can enter.
//
// A connection begins with a greeting: the secret of the generation, which rank
// 0 generates and the run's store distributes, and the connecting rank, its
// group and its channel. The port answers with one byte and passes the
// connection to the group. Connections that begin with other bytes are closed
// at once; on TCP, a connection that sends nothing is never accepted
// (TCP_DEFER_ACCEPT). While no group is connecting, a socket filter drops all
// packets for the port.
//
// The secret is sent unencrypted: it does not protect against an attacker who
// can read the network.
//
// Threads: any; an internal thread accepts connections. Errors: Error (exit 2)
// if it cannot listen at the host.
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

// The purpose of a connection between two ranks of a group.
enum class Channel : uint32_t { kCollectives, kMessages };

class TensorPort {
 public:
  // Listens at `host`, a name or an address of this machine, or the absolute
  // path of a folder.
  explicit TensorPort(const std::string& host);
  ~TensorPort();
  TensorPort(const TensorPort&) = delete;
  TensorPort& operator=(const TensorPort&) = delete;

  // Exchanges the secret and the addresses of all `size` ranks through `store`,
  // below `prefix`. Collective; throws the store's errors.
  void introduce(KeyValueStore& store, const std::string& prefix, int rank,
                 int size, std::chrono::milliseconds timeout);

  // Connects to the rank with this number in the store and sends the greeting,
  // without waiting for the answer. Tries until `is_over`, which is called
  // about 20 times a second, returns true; the returned socket is then not
  // open. Throws CommunicationError if that rank no longer listens. REQUIRES:
  // introduce().
  Socket connect(int world_rank, uint64_t group, int own_rank, Channel channel,
                 const std::function<bool()>& is_over) const;
  // Waits for the port's answer until `is_over` returns true. Returns false if
  // there is no answer, or if the other side has closed the connection: its
  // port belongs to another run, or it has left the group.
  static bool is_welcome(const Socket& socket,
                         const std::function<bool()>& is_over);

  // Passes the connections of `group`, including those accepted before this
  // call, to `take` until leave(). `take` is called with the port's mutex held.
  using Take = std::function<void(int rank, Channel channel, Socket socket)>;
  void attach(uint64_t group, Take take);
  void leave(uint64_t group);

  // The socket filter is removed while at least one Opening exists.
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
  std::string path_;                    // path of the Unix socket; "" for TCP
  std::vector<std::string> addresses_;  // one per rank, set by introduce()
  mutable std::mutex mutex_;            // guards the members below
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
