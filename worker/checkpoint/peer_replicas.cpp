#include "worker/checkpoint/peer_replicas.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/counting_communicator.h"

namespace headroom::checkpoint {
namespace {

constexpr size_t kVersions = 2;

void push(std::vector<at::Tensor>& versions, at::Tensor newest) {
  versions.insert(versions.begin(), std::move(newest));
  if (versions.size() > kVersions) versions.pop_back();
}

}  // namespace

int buddy_shift(int world_size, int most_on_a_machine) {
  return most_on_a_machine < world_size ? most_on_a_machine : 1;
}

PeerReplicas::PeerReplicas(collectives::Communicator& world, int shift)
    : communicator_(std::make_unique<collectives::CountingCommunicator>(
          world.split(0, world.rank()))),
      to_((world.rank() + shift) % world.size()),
      from_((world.rank() - shift + world.size()) % world.size()) {
  HEADROOM_CHECK(to_ != world.rank(), "nobody is their own buddy");
}

PeerReplicas::~PeerReplicas() = default;

void PeerReplicas::after_commit(step::TrainingState& state,
                                const std::string& newest_line) {
  settle();
  push(own_, pack(parts_of(state, newest_line)));
  const activations::CountingAllocator::HostMemory host;
  at::Tensor sizes = at::empty({2}, at::kLong);
  sizes.data_ptr<int64_t>()[0] = own_.front().numel();
  const auto size_sent = communicator_->send_async(sizes.narrow(0, 0, 1), to_);
  communicator_->recv(sizes.narrow(0, 1, 1), from_);
  size_sent->wait();
  arriving_ = at::empty({sizes.const_data_ptr<int64_t>()[1]}, at::kByte);
  receiving_ = communicator_->recv_async(arriving_, from_);
  sending_ = communicator_->send_async(own_.front(), to_);
}

void PeerReplicas::settle() {
  if (!receiving_) return;
  receiving_->wait();
  push(others_, std::exchange(arriving_, {}));
  receiving_.reset();
  std::exchange(sending_, nullptr)->wait();
}

void PeerReplicas::disconnect() {
  receiving_.reset();
  sending_.reset();
  communicator_.reset();
}

std::vector<HostStateSnapshot> PeerReplicas::take() const {
  std::vector<HostStateSnapshot> states;
  for (const std::vector<at::Tensor>* versions : {&own_, &others_}) {
    for (const at::Tensor& version : *versions) {
      states.push_back(unpack(version));
    }
  }
  return states;
}

}  // namespace headroom::checkpoint
