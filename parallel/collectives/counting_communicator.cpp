#include "parallel/collectives/counting_communicator.h"

#include "parallel/base/check.h"

namespace headroom {

Communicator& CountingCommunicator::inner() const {
  if (inner_ == nullptr) {
    throw CommunicationError("this rank has left its peers");
  }
  return *inner_;
}

void CountingCommunicator::count(const at::Tensor& tensor) {
  if (size() > 1) bytes_ += static_cast<int64_t>(tensor.nbytes());
}

std::unique_ptr<Work> CountingCommunicator::all_reduce_async(
    const at::Tensor& tensor, ReduceOp op) {
  count(tensor);
  return inner().all_reduce_async(tensor, op);
}

void CountingCommunicator::all_gather(const at::Tensor& output,
                                      const at::Tensor& input) {
  count(input);
  inner().all_gather(output, input);
}

std::unique_ptr<Work> CountingCommunicator::all_gather_async(
    const at::Tensor& output, const at::Tensor& input) {
  count(input);
  return inner().all_gather_async(output, input);
}

void CountingCommunicator::reduce_scatter(const at::Tensor& output,
                                          const at::Tensor& input) {
  count(input);
  inner().reduce_scatter(output, input);
}

void CountingCommunicator::broadcast(const at::Tensor& tensor, int root) {
  if (rank() == root) count(tensor);
  inner().broadcast(tensor, root);
}

std::unique_ptr<Work> CountingCommunicator::send_async(const at::Tensor& tensor,
                                                       int to) {
  count(tensor);
  return inner().send_async(tensor, to);
}

std::unique_ptr<Work> CountingCommunicator::recv_async(const at::Tensor& tensor,
                                                       int from) {
  return inner().recv_async(tensor, from);
}

}  // namespace headroom
