#include "worker/step/device_prefetcher.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/memory_category.h"
#include "parallel/devices/compute_device.h"
#include "worker/kernels/cpu/kernel_registration.h"

namespace headroom::step {

namespace {

// The level that becomes 1 in the network's input.
int64_t most_level(const at::Tensor& images) {
  return images.scalar_type() == at::kUInt16 ? UINT16_MAX : UINT8_MAX;
}

int64_t bytes_of(const at::Tensor& images) {
  return images.numel() * static_cast<int64_t>(images.element_size());
}

}  // namespace

at::Tensor network_input(const at::Tensor& images,
                         const at::TensorOptions& options,
                         const std::optional<at::Tensor>& into) {
  const at::Tensor there = images.to(options.device());
  if (kernels::DeviceKernels* const kernels =
          kernels::device_kernels_for(there)) {
    const at::Tensor input =
        into ? *into
             : at::empty(
                   {there.size(0), there.size(3), there.size(1), there.size(2)},
                   options, at::MemoryFormat::ChannelsLast);
    kernels->scale_images(there, input);
    return input;
  }
  HEADROOM_CHECK(!into, "only a device fills a map");
  return there.permute({0, 3, 1, 2})
      .to(at::kFloat)
      .div_(most_level(images))
      .to(c10::typeMetaToScalarType(options.dtype()));
}

namespace {

// Bytes of staging buffer that packed samples of `images` take.
int64_t staging_bytes(const at::Tensor& images) {
  return staged_bytes(images.size(1) * images.size(2) * images.size(3) *
                      static_cast<int64_t>(images.element_size()));
}

bool fits(const at::Tensor& place, int64_t bytes) {
  return place.defined() && place.numel() >= bytes;
}

}  // namespace

loader::AllocateImages page_locked_images(
    const devices::ComputeDevice& device) {
  if (device.is_cpu()) return {};
  return [buffers = devices::PageLockedBuffers(*device.api())](
             int64_t bytes) mutable { return buffers.take(bytes); };
}

DevicePrefetcher::DevicePrefetcher(const devices::ComputeDevice& device,
                                   FollowingBatch following)
    : device_(device), following_(std::move(following)) {
  if (device_.is_cpu()) return;
  copies_ = c10::impl::VirtualGuardImpl(device_.device().type())
                .getStreamFromGlobalPool(device_.device());
}

// Images and staging buffer must not change while they are copied.
DevicePrefetcher::~DevicePrefetcher() {
  try {
    for (const Copy& copy : copies_under_way_) copy.done.synchronize();
  } catch (const c10::Error&) {
    // A device that has failed does not copy any more.
  }
}

at::Tensor DevicePrefetcher::input(const loader::Batch& batch,
                                   const std::vector<plan::SampleRange>& parts,
                                   size_t part,
                                   const at::TensorOptions& options,
                                   const std::optional<at::Tensor>& into) {
  const Part own = part_of(batch, parts[part]);
  if (!copies_ || own.bytes.device() == device_.device()) {
    HEADROOM_CHECK(!own.is_packed, "packed samples without a device");
    return network_input(own.images, options, into);
  }
  const at::Tensor result = network_input(bytes_on_device(own), options, into);
  send_following(batch, parts, part);
  return result;
}

void DevicePrefetcher::send_following(
    const loader::Batch& batch, const std::vector<plan::SampleRange>& parts,
    size_t part) {
  if (!copies_) return;
  if (part + 1 < parts.size()) {
    send_ahead(part_of(batch, parts[part + 1]));
  } else if (const loader::Batch* next = following_ ? following_() : nullptr;
             next != nullptr && !next->micro_batches.empty()) {
    send_ahead(part_of(*next, next->micro_batches.front()));
  }
}

DevicePrefetcher::Part DevicePrefetcher::part_of(
    const loader::Batch& batch, const plan::SampleRange& range) {
  const int64_t begin = range.begin - batch.local_begin;
  Part part;
  part.images = batch.images.narrow(0, begin, range.size());
  part.bytes = part.images;
  part.is_packed = batch.packed.defined();
  if (!part.is_packed) return part;
  part.bytes = batch.packed.narrow(0, begin, range.size());
  const auto first = batch.packed_bytes.begin() + begin;
  part.packed_bytes.assign(first, first + range.size());
  return part;
}

// Does not enlarge the buffer: the step that needs more room does, so that
// running out of memory is a failure of that step.
void DevicePrefetcher::send_ahead(const Part& part) {
  if (part.bytes.device() == device_.device()) return;
  if (has_room(part) && !holds(part)) send(part);
}

at::Tensor DevicePrefetcher::bytes_on_device(const Part& part) {
  if (!holds(part)) send(part);
  if (!copies_under_way_.empty()) {
    copies_under_way_.back().done.block(stream_of_kernels());
  }
  return place_of(part.images);
}

at::Tensor DevicePrefetcher::place_of(const at::Tensor& images) const {
  return staging_buffer_.narrow(0, 0, bytes_of(images))
      .view(images.scalar_type())
      .view(images.sizes());
}

c10::Stream DevicePrefetcher::stream_of_kernels() const {
  return c10::impl::VirtualGuardImpl(device_.device().type())
      .getStream(device_.device());
}

void DevicePrefetcher::send(const Part& part) {
  while (!copies_under_way_.empty() && copies_under_way_.front().done.query()) {
    copies_under_way_.pop_front();
  }
  content_.reset();
  make_room(part);
  // All kernels that read this buffer are queued.
  c10::Event read(device_.device().type());
  read.record(stream_of_kernels());
  read.block(*copies_);
  c10::Event done(device_.device().type());
  {
    const c10::StreamGuard on(*copies_);
    const at::Tensor images = place_of(part.images);
    if (part.is_packed) {
      render(part, images);
    } else {
      images.copy_(part.bytes, /*non_blocking=*/true);
    }
  }
  done.record(*copies_);
  copies_under_way_.push_back({std::move(done), part.bytes});
  content_ = part.bytes;
}

// Runs on the copy stream, so the next copy into the buffer waits for it.
void DevicePrefetcher::render(const Part& part, const at::Tensor& images) {
  const int64_t count = images.size(0);
  for (int64_t first = 0; first < count; first += kStagedSamples) {
    const int64_t end = std::min(count, first + kStagedSamples);
    std::vector<int64_t> starts;
    int64_t at = 0;
    for (int64_t i = first; i < end; ++i) {
      const int64_t bytes = part.packed_bytes[static_cast<size_t>(i)];
      staging_.narrow(0, at, bytes)
          .copy_(part.bytes[i].narrow(0, 0, bytes), /*non_blocking=*/true);
      starts.push_back(at);
      at += bytes;
    }
    device_.kernels()->render_samples(staging_, starts,
                                      images.narrow(0, first, end - first));
  }
}

bool DevicePrefetcher::has_room(const Part& part) const {
  return fits(staging_buffer_, bytes_of(part.images)) &&
         (!part.is_packed || fits(staging_, staging_bytes(part.images)));
}

void DevicePrefetcher::make_room(const Part& part) {
  if (has_room(part)) return;
  for (const Copy& copy : copies_under_way_) copy.done.synchronize();
  copies_under_way_.clear();
  const MemoryCategoryScope loaded(MemoryCategory::kOther);
  const auto grow = [&](at::Tensor& place, int64_t bytes) {
    if (fits(place, bytes)) return;
    place.reset();
    place = at::empty({bytes}, device_.options(at::kByte));
  };
  grow(staging_buffer_, bytes_of(part.images));
  if (part.is_packed) grow(staging_, staging_bytes(part.images));
}

bool DevicePrefetcher::holds(const Part& part) const {
  return content_.defined() &&
         content_.const_data_ptr() == part.bytes.const_data_ptr() &&
         content_.sizes() == part.bytes.sizes();
}

}  // namespace headroom::step
