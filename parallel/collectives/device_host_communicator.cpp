#include "parallel/collectives/backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "parallel/base/check.h"

namespace headroom::collectives {
namespace {

at::Tensor empty_on_host(const at::Tensor& tensor) {
  return at::empty_like(tensor, at::TensorOptions(at::kCPU));
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor host = empty_on_host(tensor);
  host.copy_(tensor);
  return host;
}

class Done final : public Work {
 public:
  void wait() override {}
};

// An operation on the host, whose result is copied back once it is done.
class Staged final : public Work {
 public:
  Staged(std::unique_ptr<Work> work, at::Tensor host, at::Tensor target)
      : work_(std::move(work)),
        host_(std::move(host)),
        target_(std::move(target)) {}
  void wait() override {
    work_->wait();
    const at::NoGradGuard no_grad;
    if (target_.defined()) target_.copy_(host_);
  }

 private:
  const std::unique_ptr<Work> work_;
  const at::Tensor host_, target_;
};

class DeviceHostCommunicator final : public Communicator {
 public:
  DeviceHostCommunicator(std::unique_ptr<Communicator> host,
                         std::shared_ptr<DeviceRanks> devices)
      : host_(std::move(host)), device_ranks_(std::move(devices)) {
    // A group of one needs no device communicator.
    if (device_ranks_ && size() > 1) devices_ = device_ranks_->over(*host_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    if (size() == 1) return std::make_unique<Done>();
    if (Communicator* const direct = direct_for(tensor)) {
      return direct->all_reduce_async(tensor, op);
    }
    at::Tensor host = on_host(tensor);
    auto work = host_->all_reduce_async(host, op);
    return std::make_unique<Staged>(std::move(work), host, tensor);
  }
  at::Tensor zeros(int64_t count, at::ScalarType type) override {
    return host_->zeros(count, type);
  }
  std::shared_ptr<Buffers> buffers() const override { return host_->buffers(); }
  void adopt(std::shared_ptr<Buffers> buffers) override {
    host_->adopt(std::move(buffers));
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    if (size() == 1) return copy_of_one(output, input);
    if (Communicator* const direct = direct_for(output)) {
      return direct->all_gather(output, input);
    }
    const at::Tensor whole = empty_on_host(output);
    host_->all_gather(whole, on_host(input));
    output.copy_(whole);
  }
  void all_gather_pieces(const at::Tensor& flat,
                         const std::vector<int64_t>& part_sizes) override {
    if (size() == 1) return;
    if (Communicator* const direct = direct_for(flat)) {
      return direct->all_gather_pieces(flat, part_sizes);
    }
    Communicator::all_gather_pieces(flat, part_sizes);
  }
  std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                         const at::Tensor& input) override {
    if (Communicator* const direct = direct_for(output)) {
      return direct->all_gather_async(output, input);
    }
    return Communicator::all_gather_async(output, input);
  }
  bool gathers_in_background() const override {
    return (devices_ != nullptr ? devices_ : host_)->gathers_in_background();
  }
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    if (size() == 1) return copy_of_one(output, input);
    if (Communicator* const direct = direct_for(output)) {
      return direct->reduce_scatter(output, input);
    }
    const at::Tensor part = empty_on_host(output);
    host_->reduce_scatter(part, on_host(input));
    output.copy_(part);
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    if (size() == 1) return;
    if (Communicator* const direct = direct_for(tensor)) {
      return direct->broadcast(tensor, root);
    }
    const at::Tensor host = on_host(tensor);
    host_->broadcast(host, root);
    if (rank() != root) tensor.copy_(host);
  }
  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    if (Communicator* const direct = messenger_for(tensor)) {
      return direct->send_async(tensor, to);
    }
    const at::Tensor host = on_host(tensor);
    return std::make_unique<Staged>(host_->send_async(host, to), host,
                                    at::Tensor());
  }
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    if (Communicator* const direct = messenger_for(tensor)) {
      return direct->recv_async(tensor, from);
    }
    const at::Tensor host = empty_on_host(tensor);
    return std::make_unique<Staged>(host_->recv_async(host, from), host,
                                    tensor);
  }
  void barrier() override {
    check();
    host_->barrier();
  }
  void connect() override {
    if (devices_ != nullptr) devices_->connect();
  }
  void connect_for_small_sums() override {
    if (devices_ != nullptr) devices_->connect_for_small_sums();
  }
  void connect_messages() override {
    if (devices_ == nullptr) return;
    devices_->connect_messages();
    sends_directly_ = true;
  }
  void check() override {
    if (devices_ != nullptr) devices_->check();
  }
  void synchronize() override {
    if (devices_ != nullptr) devices_->synchronize();
  }
  std::shared_ptr<const int32_t> failure_word() const override {
    return devices_ != nullptr ? devices_->failure_word() : nullptr;
  }
  void abandon() override {
    host_->abandon();
    if (devices_ != nullptr) devices_->abandon();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return make_device_host_communicator(host_->split(color, key),
                                         device_ranks_);
  }

 private:
  static void copy_of_one(const at::Tensor& output, const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    output.as_strided({output.numel()}, {1})
        .copy_(input.as_strided({input.numel()}, {1}));
  }

  // The communicator that takes `tensor` as it is, or null if the tensor must
  // be copied to the host. For a host tensor, first checks that no device
  // operation has failed, because the data may depend on one.
  Communicator* direct_for(const at::Tensor& tensor) const {
    if (!tensor.is_cpu()) return devices_.get();
    if (devices_ != nullptr) devices_->check();
    return host_.get();
  }

  Communicator* messenger_for(const at::Tensor& tensor) const {
    if (tensor.is_cpu()) return host_.get();
    return sends_directly_ ? devices_.get() : nullptr;
  }

  const std::unique_ptr<Communicator> host_;
  // null if device tensors are always copied to the host
  const std::shared_ptr<DeviceRanks> device_ranks_;
  // null if device_ranks_ is null or there is one rank
  std::unique_ptr<Communicator> devices_;
  bool sends_directly_ = false;  // true after connect_messages()
};

}  // namespace

std::unique_ptr<Communicator> make_device_host_communicator(
    std::unique_ptr<Communicator> host, std::shared_ptr<DeviceRanks> devices) {
  return std::make_unique<DeviceHostCommunicator>(std::move(host),
                                                  std::move(devices));
}

}  // namespace headroom::collectives
