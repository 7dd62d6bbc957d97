// NetworkGroup: the connections of this rank to the others of a group, and the
// operations over them.
//
// Two ranks have up to two connections: one for collectives, between ranks
// whose distance is a power of two (round the ring of ranks), and one for
// messages, between any two ranks. Data is sent in order of issue, after its
// length, which is checked. A group has two threads, each started on first use:
// one runs the collectives one by one, the other moves all messages at the same
// time.
//
// The first failure of any kind ends the group on this rank: all its
// connections are closed, which makes the peers fail at once too, and every
// operation in progress fails with the reason. The ranks of a machine that
// share memory for sums (use()) fail at once too, except the first of them
// while it waits for another machine: that one fails when the generation is
// aborted or at the time limit.
//
// Threads: any; several threads may call await() at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parallel/collectives/shared_group.h"
#include "parallel/collectives/tensor_port.h"

namespace headroom::collectives {

using Bytes = std::span<std::byte>;

inline Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

// A collective or a message in progress.
class Operation {
 public:
  // `failure` is the reason of the failure, or "".
  void finish(const std::string& failure);

 private:
  friend class NetworkGroup;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::string failure_;
  std::atomic<int> awaited_ = -1;  // the rank from which data is expected
};

struct GroupMembers {
  std::shared_ptr<TensorPort> port;
  std::string name;                   // unique, and equal on all ranks
  int rank = 0;                       // this rank's number
  std::vector<int> world_ranks = {};  // members' ranks in the run
  bool is_full_mesh = true;           // every two ranks connect at once
};

class NetworkGroup {
 public:
  // Connects. Collective; throws CommunicationError ("rank 0 of 2, connecting:
  // ...").
  NetworkGroup(GroupMembers members, std::chrono::milliseconds timeout);
  ~NetworkGroup();
  NetworkGroup(const NetworkGroup&) = delete;
  NetworkGroup& operator=(const NetworkGroup&) = delete;

  // Sums use `machines` from now on. Connects this rank with `partners` for
  // collectives; they do the same at the same time, and their ports are open.
  // No operation may be in progress. Throws CommunicationError.
  void use(SharedGroup::Machines machines, const std::vector<int>& partners);

  int rank() const { return members_.rank; }
  int size() const { return static_cast<int>(members_.world_ranks.size()); }

  // This machine's ranks, if they share memory for sums, or null.
  SharedGroup* machine() const { return machines_.here.get(); }
  // The ranks that sum over the network, in ascending order: all ranks, or each
  // machine's lowest.
  const std::vector<int>& leaders() const { return machines_.leaders; }

  using Handle = std::shared_ptr<Operation>;
  // Runs `body` after all earlier collectives. `body` owns its tensors, and
  // communicates only with exchange(); an exception from it ends the group.
  Handle collective(std::function<void()> body);
  Handle send(const at::Tensor& tensor, int to);
  Handle receive(const at::Tensor& tensor, int from);

  // Waits for an operation. Throws CommunicationError ("rank 1 of 3, send:
  // ...") if it fails, takes longer than the group's time limit (as
  // PeerPatience counts), or a peer of this process is lost.
  void await(Operation& operation, const char* name);

  // Ends the group.
  void fail(const std::string& reason);

  // Within a collective: sends `out` to the rank `to` while receiving `size`
  // bytes from the rank `from`. Received data is passed to `take` in pieces of
  // a multiple of 64 bytes, except for the last. Pass no bytes to skip sending
  // or receiving.
  using Take = std::function<void(size_t offset, Bytes piece)>;
  void exchange(int to, Bytes out, int from, size_t size, const Take& take);
  // Like the other exchange(), but receives into `in`. `look` is called with
  // all bytes that have arrived, whenever there are more.
  using Look = std::function<void(Bytes arrived)>;
  void exchange(int to, Bytes out, int from, Bytes in,
                const Look& look = nullptr);

 private:
  struct Message {
    Message(bool sends, int with, const at::Tensor& values)
        : is_sent(sends),
          peer(with),
          tensor(values),
          bytes(bytes_of(values)),
          length(bytes.size()) {}
    bool is_sent;
    int peer;
    at::Tensor tensor;  // kept until the message is complete
    Bytes bytes;
    uint64_t length;
    size_t done = 0;  // bytes moved, including the length prefix
    Handle operation;
  };
  struct Link {
    int socket = -1;
    std::deque<Message> sends, receives;
    bool is_idle() const { return sends.empty() && receives.empty(); }
  };
  struct Task {
    std::function<void()> body;
    Handle operation;
  };

  using Wanted = std::vector<std::pair<int, Channel>>;
  void connect();
  void connect_or_throw(const Wanted& wanted);
  void connect_with(const Wanted& wanted);
  Socket connect_to(int peer, Channel channel,
                    const std::function<bool()>& is_over) const;
  Socket welcomed(int peer, Channel channel, Socket socket,
                  const std::function<bool()>& is_over);
  int connected(int peer, Channel channel);
  void keep(int peer, Channel channel, Socket socket);
  int collective_socket(int peer) const;
  void note_wait(int peer);
  std::string timed_out(const Operation& operation) const;
  bool has_failed() const { return has_failed_; }
  std::string reason() const;
  Handle issue(Message message);
  void wake() const;

  void run_collectives();
  void run_messages();
  void take_news(std::map<int, Link>& links);
  void move_messages(std::map<int, Link>& links);
  void pump(Link& link, int peer);
  bool move(Message& message, int socket, int peer);

  const GroupMembers members_;
  const uint64_t id_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<TensorPort::Opening> opening_;
  Socket wake_;                   // an eventfd
  std::vector<std::byte> piece_;  // buffer of the collectives thread
  Operation* running_ = nullptr;  // the collectives thread's operation
  std::atomic<bool> has_failed_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::string reason_;
  SharedGroup::Machines machines_;  // changed by use() only
  bool is_ending_ = false;
  std::vector<Socket> sockets_;  // open until the group is destroyed
  std::map<std::pair<int, Channel>, int> by_peer_;
  std::deque<Task> tasks_;
  std::vector<Message> issued_;
  std::thread collectives_, messages_;
};

}  // namespace headroom::collectives
