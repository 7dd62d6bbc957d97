#include "parallel/collectives/counting_communicator.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::collectives {
namespace {

class WatchedWork final : public Work {
 public:
  explicit WatchedWork(std::unique_ptr<Work> inner)
      : inner_(std::move(inner)) {}
  void wait() override {
    const PeerWait waiting;
    inner_->wait();
  }

 private:
  std::unique_ptr<Work> inner_;
};

std::unique_ptr<Work> watched(std::unique_ptr<Work> work) {
  return std::make_unique<WatchedWork>(std::move(work));
}

}  // namespace

Communicator& CountingCommunicator::inner() const {
  if (inner_ == nullptr) {
    throw CommunicationError("this rank has left its peers");
  }
  return *inner_;
}

void CountingCommunicator::reconnect(std::unique_ptr<Communicator> inner) {
  HEADROOM_CHECK(inner->rank() == rank_ && inner->size() == size_,
                 cat("rank ", inner->rank(), " of ", inner->size(),
                     " in the place of rank ", rank_, " of ", size_));
  disconnect();
  inner_ = std::move(inner);
  if (buffers_) inner_->adopt(std::exchange(buffers_, nullptr));
}

void CountingCommunicator::count(const at::Tensor& tensor) {
  if (size() > 1) bytes_ += static_cast<int64_t>(tensor.nbytes());
}

std::unique_ptr<Work> CountingCommunicator::all_reduce_async(
    const at::Tensor& tensor, ReduceOp op) {
  count(tensor);
  return watched(inner().all_reduce_async(tensor, op));
}

void CountingCommunicator::all_gather(const at::Tensor& output,
                                      const at::Tensor& input) {
  count(input);
  const PeerWait waiting;
  inner().all_gather(output, input);
}

void CountingCommunicator::all_gather_pieces(
    const at::Tensor& flat, const std::vector<int64_t>& part_sizes) {
  count(flat.narrow(0, 0, flat.numel() / size()));
  const PeerWait waiting;
  inner().all_gather_pieces(flat, part_sizes);
}

std::unique_ptr<Work> CountingCommunicator::all_gather_async(
    const at::Tensor& output, const at::Tensor& input) {
  count(input);
  return watched(inner().all_gather_async(output, input));
}

void CountingCommunicator::reduce_scatter(const at::Tensor& output,
                                          const at::Tensor& input) {
  count(input);
  const PeerWait waiting;
  inner().reduce_scatter(output, input);
}

void CountingCommunicator::broadcast(const at::Tensor& tensor, int root) {
  if (rank() == root) count(tensor);
  const PeerWait waiting;
  inner().broadcast(tensor, root);
}

std::unique_ptr<Work> CountingCommunicator::send_async(const at::Tensor& tensor,
                                                       int to) {
  count(tensor);
  return watched(inner().send_async(tensor, to));
}

std::unique_ptr<Work> CountingCommunicator::recv_async(const at::Tensor& tensor,
                                                       int from) {
  return watched(inner().recv_async(tensor, from));
}

}  // namespace headroom::collectives
