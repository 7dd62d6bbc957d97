// CountingCommunicator: passes everything on and counts the bytes that this
// rank hands over: what it sends, reduces, gathers (its own part), scatters or,
// as root, broadcasts. Headers and what it receives do not count.
//
// Ownership: owns the communicator it passes everything on to.
// Threads: as Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "parallel/collectives/communicator.h"

namespace headroom {

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)) {}

  int64_t bytes() const { return bytes_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override;
  void all_gather(const at::Tensor& output, const at::Tensor& input) override;
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override;
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor, int from) override;
  void barrier() override { inner_->barrier(); }
  // The parts count for themselves.
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_->split(color, key);
  }

 private:
  // A group of one hands nothing to anybody.
  void count(const at::Tensor& tensor);

  std::unique_ptr<Communicator> inner_;
  int64_t bytes_ = 0;
};

}  // namespace headroom
