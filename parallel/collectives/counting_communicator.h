// CountingCommunicator: forwards all operations and counts the bytes that this
// rank contributes: what it sends, reduces, gathers (its own part), scatters
// or, as root, broadcasts. Headers and received bytes are not counted. While an
// operation waits for peers, this object holds a PeerWait.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

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
  // Makes peers that wait for this rank fail at once. Until reconnect() every
  // operation throws CommunicationError.
  void disconnect() {
    if (inner_ == nullptr) return;
    buffers_ = inner_->buffers();
    abandon();
    inner_.reset();
  }
  // Continues with `inner`, a new connection of the same ranks, so that users
  // of this object need not be rebuilt with a new generation. REQUIRES: the
  // same rank and size; earlier operations are dropped.
  void reconnect(std::unique_ptr<Communicator> inner);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override;
  at::Tensor zeros(int64_t count, at::ScalarType type) override {
    return inner().zeros(count, type);
  }
  std::shared_ptr<Buffers> buffers() const override {
    return inner_ != nullptr ? inner_->buffers() : buffers_;
  }
  void adopt(std::shared_ptr<Buffers> buffers) override {
    inner().adopt(std::move(buffers));
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_pieces(const at::Tensor& flat,
                         const std::vector<int64_t>& part_sizes) override;
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
  void connect_for_small_sums() override {
    const PeerWait waiting;
    inner().connect_for_small_sums();
  }
  void connect_messages() override {
    const PeerWait waiting;
    inner().connect_messages();
  }
  void check() override { inner().check(); }
  void synchronize() override { inner().synchronize(); }
  std::shared_ptr<const int32_t> failure_word() const override {
    return inner().failure_word();
  }
  void abandon() override {
    if (inner_ != nullptr) inner_->abandon();
  }
  // Bytes of the new communicators are not counted here.
  std::unique_ptr<Communicator> split(int color, int key) override {
    const PeerWait waiting;
    return inner().split(color, key);
  }

 private:
  // Adds the tensor's bytes to bytes_, except in a group of one rank.
  void count(const at::Tensor& tensor);
  Communicator& inner() const;

  std::unique_ptr<Communicator> inner_;  // null while disconnected
  const int rank_, size_;
  int64_t bytes_ = 0;
  std::shared_ptr<Buffers> buffers_;  // set while disconnected
};

}  // namespace headroom::collectives
