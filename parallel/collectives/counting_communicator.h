// CountingCommunicator: passes everything on and counts the bytes that this
// rank hands over: what it sends, reduces, gathers (its own part), scatters or,
// as root, broadcasts. Headers and what it receives do not count. Where it
// waits, it says so (PeerWait).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "parallel/base/peer_wait.h"
#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)),
        rank_(inner_->rank()),
        size_(inner_->size()) {}

  int64_t bytes() const { return bytes_; }
  // Lets peers that wait for this rank fail at once. From then on every
  // operation throws CommunicationError.
  void disconnect() {
    abandon();
    inner_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override;
  at::Tensor zeros(int64_t count, at::ScalarType type) override {
    return inner().zeros(count, type);
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override;
  std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                         const at::Tensor& input) override;
  bool gathers_in_background() const override {
    return inner().gathers_in_background();
  }
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override;
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor, int from) override;
  void barrier() override {
    const PeerWait waiting;
    inner().barrier();
  }
  void connect() override {
    const PeerWait waiting;
    inner().connect();
  }
  void check() override { inner().check(); }
  void synchronize() override { inner().synchronize(); }
  void abandon() override {
    if (inner_ != nullptr) inner_->abandon();
  }
  // The parts are not counted here.
  std::unique_ptr<Communicator> split(int color, int key) override {
    const PeerWait waiting;
    return inner().split(color, key);
  }

 private:
  // A group of one hands nothing to anybody.
  void count(const at::Tensor& tensor);
  Communicator& inner() const;

  std::unique_ptr<Communicator> inner_;  // null once disconnected
  const int rank_, size_;
  int64_t bytes_ = 0;
};

}  // namespace headroom::collectives
