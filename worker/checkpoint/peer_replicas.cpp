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

}  // namespace

void PeerReplicas::put(std::vector<Version>& versions, Version newest) {
  if (!versions.empty() && versions.front().step == newest.step) {
    versions.front() = std::move(newest);
    return;
  }
  versions.insert(versions.begin(), std::move(newest));
  if (versions.size() > kVersions) versions.pop_back();
}

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

void PeerReplicas::after_commit(step::TrainingState& state) {
  settle();
  put(own_, {state.counters.committed_steps, pack(parts_of(state, ""))});
  const activations::CountingAllocator::HostMemory host;
  // The step and size of the sent part, then the step and size of the received
  // part.
  at::Tensor headers = at::empty({4}, at::kLong);
  auto* const header = headers.data_ptr<int64_t>();
  header[0] = own_.front().step;
  header[1] = own_.front().bytes.numel();
  const auto header_sent =
      communicator_->send_async(headers.narrow(0, 0, 2), to_);
  communicator_->recv(headers.narrow(0, 2, 2), from_);
  header_sent->wait();
  arriving_ = {header[2], at::empty({header[3]}, at::kByte)};
  receiving_ = communicator_->recv_async(arriving_.bytes, from_);
  sending_ = communicator_->send_async(own_.front().bytes, to_);
}

void PeerReplicas::settle() {
  if (!receiving_) return;
  receiving_->wait();
  put(others_, std::exchange(arriving_, {}));
  receiving_.reset();
  std::exchange(sending_, nullptr)->wait();
}

void PeerReplicas::disconnect() {
  receiving_.reset();
  sending_.reset();
  communicator_->disconnect();
}

void PeerReplicas::reconnect(collectives::Communicator& world,
                             step::TrainingState& state) {
  disconnect();
  communicator_->reconnect(world.split(0, world.rank()));
  if (state.counters.committed_steps > 0) after_commit(state);
}

std::vector<HostStateSnapshot> PeerReplicas::take() const {
  std::vector<HostStateSnapshot> states;
  for (const std::vector<Version>* versions : {&own_, &others_}) {
    for (const Version& version : *versions) {
      states.push_back(unpack(version.bytes));
    }
  }
  return states;
}

}  // namespace headroom::checkpoint
