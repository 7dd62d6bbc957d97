#include "worker/checkpoint/peer_replicas.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/units.h"
#include "parallel/collectives/shared_group.h"
#include "parallel/devices/compute_device.h"

namespace headroom::checkpoint {
namespace {

constexpr int64_t kBufferAlignment = 64;  // of buffers in the bytes of a kind

at::Tensor host_bytes_of(int64_t bytes) {
  const activations::CountingAllocator::HostMemory host;
  return at::empty({bytes}, at::kByte);
}

at::Tensor locked_bytes(const devices::ComputeDevice& device, int64_t bytes) {
  std::shared_ptr<void> locked = device.api()->lock_pages(bytes);
  void* const address = locked.get();
  return at::from_blob(
      address, {bytes}, [locked](void*) mutable { locked.reset(); }, at::kByte);
}

// A tensor over the memory of `segment`, which it keeps, and with it the token
// `counted`.
at::Tensor bytes_of(collectives::SharedSegment segment, int64_t bytes,
                    std::shared_ptr<void> counted) {
  auto kept = std::make_shared<collectives::SharedSegment>(std::move(segment));
  return at::from_blob(
      kept->data(), {bytes},
      [kept, counted = std::move(counted)](void*) mutable {
        kept.reset();
        counted.reset();
      },
      at::kByte);
}

template <typename Message>
at::Tensor message_of(const Message& message) {
  at::Tensor bytes = host_bytes_of(sizeof message);
  std::memcpy(bytes.data_ptr(), &message, sizeof message);
  return bytes;
}

// Proves that a process can map another's memory.
constexpr size_t kProbeBytes = 64;
struct Probe {
  int64_t machine = 0;
  collectives::SegmentAddress address;
};

bool can_map(const std::string& offer) {
  Probe probe;
  if (offer.size() != sizeof probe) return false;
  std::memcpy(&probe, offer.data(), sizeof probe);
  if (probe.machine != collectives::memory_identity()) return false;
  try {
    collectives::SharedSegment::open(probe.address, kProbeBytes);
  } catch (const Error& error) {
    log::debug("copies of state are sent: " + error.text());
    return false;
  }
  return true;
}

// Sends `text` to the rank `to` and returns what the rank `from` has sent.
std::string exchange(collectives::Communicator& ranks, int to, int from,
                     std::string text) {
  int64_t sizes[] = {static_cast<int64_t>(text.size()), 0};
  const auto pass = [&](void* out, int64_t out_bytes, void* in,
                        int64_t in_bytes) {
    const auto sent =
        ranks.send_async(at::from_blob(out, {out_bytes}, at::kByte), to);
    ranks.recv(at::from_blob(in, {in_bytes}, at::kByte), from);
    sent->wait();
  };
  pass(&sizes[0], sizeof sizes[0], &sizes[1], sizeof sizes[1]);
  std::string received(static_cast<size_t>(sizes[1]), '\0');
  pass(text.data(), sizes[0], received.data(), sizes[1]);
  return received;
}

}  // namespace

int buddy_shift(int world_size, int most_on_a_machine) {
  return most_on_a_machine < world_size ? most_on_a_machine : 1;
}

bool is_held_elsewhere(const plan::ParallelLayout& layout, int rank,
                       bool is_divided, int shift) {
  const plan::MeshCoordinates here = plan::coordinates_of(layout, rank);
  for (int other = 0; other < layout.world_size(); ++other) {
    const plan::MeshCoordinates there = plan::coordinates_of(layout, other);
    if (there.pipeline_stage == here.pipeline_stage &&
        (!is_divided || there.data_parallel_rank == here.data_parallel_rank) &&
        std::abs(other - rank) >= shift) {
      return true;
    }
  }
  return false;
}

// Adds the copies of one buffer to the end of its kind's bytes.
void PeerReplicas::add(const step::TrainingState::Buffer& buffer,
                       OwnPart& part) const {
  VersionLayout::Kind& kind = part.layout.of(buffer.change);
  std::vector<Run>& runs = part.runs[static_cast<size_t>(buffer.change)];
  const at::ScalarType type = buffer.flat->scalar_type();
  const auto element = static_cast<int64_t>(c10::elementSize(type));
  const bool is_gathered = buffer.owners != nullptr && buffer.shards == nullptr;
  const int64_t begin = kind.bytes;
  int64_t size = is_gathered ? 0 : buffer.flat->numel();
  if (!is_gathered && size > 0) runs.push_back({buffer.flat, 0, size, begin});
  for (size_t index = 0; index < buffer.flat_buffer->layers().size(); ++index) {
    const data_parallel::FlatBuffer::Layer& layer =
        buffer.flat_buffer->layers()[index];
    VersionLayout::Part piece;
    piece.place = {buffer.name, layer.number, 0, {}};
    piece.size = layer.size;
    piece.type = type;
    int64_t from = layer.offset;
    if (buffer.owners != nullptr) {
      const auto number = static_cast<int64_t>(index);
      const int64_t slice = buffer.owners->slice_size(number);
      piece.place.begin = state_.mesh()->data->rank() * slice;
      piece.size =
          std::clamp<int64_t>(layer.size - piece.place.begin, 0, slice);
      if (is_gathered) {
        runs.push_back({buffer.flat, layer.offset + piece.place.begin, slice,
                        begin + size * element});
        from = size;
        size += slice;
      } else {
        from = buffer.owners->shard_offset(number);
      }
    }
    piece.at = begin + from * element;
    if (piece.size > 0) kind.parts.push_back(std::move(piece));
  }
  kind.bytes = begin + round_up(size * element, kBufferAlignment);
}

PeerReplicas::OwnPart PeerReplicas::own_part(int shift) const {
  const collectives::Mesh& mesh = *state_.mesh();
  OwnPart part;
  for (const bool is_sent : {true, false}) {
    for (const step::TrainingState::Buffer& buffer : state_.buffers()) {
      if (is_sent != is_held_elsewhere(mesh.layout, mesh.world.rank(),
                                       buffer.owners != nullptr, shift)) {
        add(buffer, part);
      }
    }
    if (is_sent) part.sent = part.layout;
  }
  return part;
}

// Both ends of each pair get the same answer. Collective.
void PeerReplicas::agree_on_sharing(bool may_share) {
  std::optional<collectives::SharedSegment> probed;
  std::string offer = "sent";
  if (may_share && state_.device().is_cpu() && part_.sent.bytes() > 0) {
    try {
      probed = collectives::SharedSegment::create(kProbeBytes);
      const Probe probe{collectives::memory_identity(), probed->address()};
      offer.assign(reinterpret_cast<const char*>(&probe), sizeof probe);
    } catch (const Error& error) {
      log::debug("copies of state are sent: " + error.text());
    }
  }
  maps_ = can_map(exchange(*communicator_, to_, from_, offer));
  is_mapped_ = exchange(*communicator_, from_, to_,
                        maps_ ? "maps" : "receives") == "maps";
}

// Memory for a version of this rank's own part.
at::Tensor PeerReplicas::allocate(int64_t bytes) {
  if (!state_.device().is_cpu()) return locked_bytes(state_.device(), bytes);
  if (!is_mapped_) return host_bytes_of(bytes);
  const activations::CountingAllocator::HostMemory host;
  std::shared_ptr<void> counted = OutsideMemory::count(bytes);
  auto segment = collectives::SharedSegment::create(static_cast<size_t>(bytes));
  const collectives::SegmentAddress address = segment.address();
  at::Tensor memory = bytes_of(std::move(segment), bytes, std::move(counted));
  shared_[memory.data_ptr()] = {{}, bytes, address};
  return memory;
}

PeerReplicas::PeerReplicas(collectives::Communicator& world, int shift,
                           step::TrainingState& state, bool may_share)
    : state_(state),
      communicator_(std::make_unique<collectives::CountingCommunicator>(
          world.split(0, world.rank()))),
      to_((world.rank() + shift) % world.size()),
      from_((world.rank() - shift + world.size()) % world.size()),
      part_(own_part(shift)),
      own_(part_.layout, [this](int64_t bytes) { return allocate(bytes); }) {
  HEADROOM_CHECK(to_ != world.rank(), "nobody is their own buddy");
  agree_on_sharing(may_share);
  others_ = std::make_unique<StateVersions>(
      layout_from_text(
          exchange(*communicator_, to_, from_, to_text(part_.sent))),
      host_bytes_of);
  if (state.device().is_cpu()) return;
  copies_ = c10::impl::VirtualGuardImpl(state.device().device().type())
                .getStreamFromGlobalPool(state.device().device());
}

PeerReplicas::~PeerReplicas() {
  if (starting_.valid()) starting_.wait();
}

bool PeerReplicas::has_changed(Change change) const {
  if (change == Change::kEach || own_.newest_step() < 0) return true;
  return (change == Change::kUpdates) == state_.has_just_updated();
}

void PeerReplicas::copy(Change change) {
  const at::Tensor& bytes = own_.begin(change, state_.counters.committed_steps);
  for (const Run& run : part_.runs[static_cast<size_t>(change)]) {
    const at::Tensor from = run.flat->detach().narrow(0, run.from, run.size);
    if (from.is_cpu()) {
      // Writes past the caches, which copy_() does not.
      std::memcpy(bytes.data_ptr<uint8_t>() + run.at, from.data_ptr(),
                  from.nbytes());
      continue;
    }
    bytes.narrow(0, run.at, static_cast<int64_t>(from.nbytes()))
        .view(from.scalar_type())
        .copy_(from, /*non_blocking=*/true);
  }
}

void PeerReplicas::copy_own() {
  const at::NoGradGuard no_grad;
  const auto copy_all = [&] {
    changed_.clear();
    for (const Change change : VersionLayout::kKinds) {
      const bool is_zero =
          change == Change::kBetweenUpdates && state_.has_just_updated();
      if (is_zero) own_.begin_zero(change, state_.counters.committed_steps);
      if (is_zero || !has_changed(change)) continue;
      copy(change);
      changed_.push_back(change);
    }
  };
  if (!copies_) {
    copy_all();
  } else {
    const c10::DeviceType type = copies_->device_type();
    c10::Event committed(type);
    committed.record(
        c10::impl::VirtualGuardImpl(type).getStream(copies_->device()));
    committed.block(*copies_);
    const c10::StreamGuard on(*copies_);
    copy_all();
    copied_.emplace(type);
    copied_->record(*copies_);
  }
  own_.complete(state_.counters);
}

void PeerReplicas::await_copy() const {
  if (copied_) copied_->synchronize();
}

void PeerReplicas::after_commit() {
  settle();
  const int64_t step = state_.counters.committed_steps;
  if (own_.newest_step() != step) copy_own();
  for (const Change change : changed_) {
    const int64_t sent = part_.sent.of(change).bytes;
    if (sent > 0) {
      const at::Tensor bytes = own_.newest_bytes(change);
      if (is_mapped_) {
        SharedBytes where = shared_.at(bytes.data_ptr());
        where.change = change;
        sent_.push_back(message_of(where));
      } else {
        sent_.push_back(bytes.narrow(0, 0, sent));
      }
    }
    if (others_->layout().of(change).bytes == 0) continue;
    if (maps_) to_map_.push_back(host_bytes_of(sizeof(SharedBytes)));
    received_.push_back(maps_ ? to_map_.back() : others_->begin(change, step));
  }
  if (state_.has_just_updated()) {
    others_->begin_zero(Change::kBetweenUpdates, step);
  }
  is_transferring_ = true;
  if (!copies_) return begin_transfer();
  starting_ = std::async(std::launch::async, [this] {
    const c10::DeviceGuard on(copies_->device());
    await_copy();
    begin_transfer();
  });
}

// On a device this runs on a thread that waits for no peer.
void PeerReplicas::begin_transfer() {
  for (const at::Tensor& bytes : std::exchange(received_, {})) {
    works_.push_back(communicator_->recv_async(bytes, from_));
  }
  for (const at::Tensor& bytes : std::exchange(sent_, {})) {
    works_.push_back(communicator_->send_async(bytes, to_));
  }
}

// Maps the versions whose places this rank has received, then tells the other
// rank so: until then that rank must not end, because its memory is opened
// through its process.
void PeerReplicas::map_received() {
  for (const at::Tensor& message : std::exchange(to_map_, {})) {
    SharedBytes where;
    std::memcpy(&where, message.data_ptr(), sizeof where);
    try {
      others_->hold(
          where.change, own_.newest_step(),
          bytes_of(collectives::SharedSegment::open(
                       where.address, static_cast<size_t>(where.bytes)),
                   where.bytes, /*counted=*/nullptr));
    } catch (const Error& error) {
      throw CommunicationError("copies of rank " + std::to_string(from_) +
                               ": " + error.text());
    }
  }
  at::Tensor mapped = host_bytes_of(1), theirs = host_bytes_of(1);
  std::unique_ptr<collectives::Work> told;
  if (maps_) told = communicator_->send_async(mapped.zero_(), from_);
  if (is_mapped_) communicator_->recv(theirs, to_);
  if (told) told->wait();
}

void PeerReplicas::settle() {
  if (starting_.valid()) starting_.get();
  if (!is_transferring_) return;
  for (const auto& work : works_) work->wait();
  works_.clear();
  map_received();
  is_transferring_ = false;
  others_->complete(own_.newest_counters());
}

void PeerReplicas::disconnect() {
  if (starting_.valid()) starting_.wait();
  starting_ = {};
  works_.clear();
  sent_.clear();
  received_.clear();
  to_map_.clear();
  is_transferring_ = false;
  communicator_->disconnect();
}

void PeerReplicas::reconnect(collectives::Communicator& world) {
  disconnect();
  communicator_->reconnect(world.split(0, world.rank()));
  if (state_.counters.committed_steps > 0) after_commit();
}

HostStateSnapshot PeerReplicas::newest() const {
  await_copy();
  std::vector<HostStateSnapshot> versions = own_.versions();
  HEADROOM_CHECK(!versions.empty(), "no state was copied");
  return std::move(versions.front());
}

std::vector<HostStateSnapshot> PeerReplicas::take() const {
  await_copy();
  std::vector<HostStateSnapshot> states = own_.versions();
  if (others_->layout().bytes() == 0) return states;
  for (HostStateSnapshot& state : others_->versions()) {
    states.push_back(std::move(state));
  }
  return states;
}

int64_t PeerReplicas::host_bytes() const {
  return 3 * part_.layout.bytes() + (maps_ ? 0 : 2 * others_->layout().bytes());
}

}  // namespace headroom::checkpoint
