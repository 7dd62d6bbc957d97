#include "worker/image_feed.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "parallel/base/memory_category.h"
#include "parallel/devices/page_locked.h"
#include "worker/network_input.h"

namespace headroom {
namespace {

at::Tensor images_of(const Batch& batch, const SampleRange& part) {
  return batch.images.narrow(0, part.begin - batch.local_begin, part.size());
}

}  // namespace

AllocateImages page_locked_images(const ComputeDevice& device) {
  if (device.is_cpu()) return {};
  return [buffers = PageLockedBuffers(*device.api())](int64_t bytes) mutable {
    return buffers.take(bytes);
  };
}

ImageFeed::ImageFeed(const ComputeDevice& device, FollowingBatch following)
    : device_(device), following_(std::move(following)) {
  if (device_.is_cpu()) return;
  copies_ = c10::impl::VirtualGuardImpl(device_.device().type())
                .getStreamFromGlobalPool(device_.device());
}

// Nobody may write to images, or to the place, while they are copied.
ImageFeed::~ImageFeed() {
  try {
    for (const Copy& copy : copies_under_way_) copy.done.synchronize();
  } catch (const c10::Error&) {
    // A device that failed copies nothing any more.
  }
}

at::Tensor ImageFeed::input(const Batch& batch,
                            const std::vector<SampleRange>& parts, size_t part,
                            const at::TensorOptions& options) {
  const at::Tensor images = images_of(batch, parts[part]);
  if (!copies_ || images.device() == device_.device()) {
    return network_input(images, options);
  }
  const at::Tensor result = network_input(bytes_on_device(images), options);
  if (part + 1 < parts.size()) {
    send_ahead(images_of(batch, parts[part + 1]));
  } else if (const Batch* next = following_ ? following_() : nullptr;
             next != nullptr && !next->micro_batches.empty()) {
    send_ahead(images_of(*next, next->micro_batches.front()));
  }
  return result;
}

// A larger place is made when it is needed: where memory runs out, it does so
// in the step that it is for.
void ImageFeed::send_ahead(const at::Tensor& images) {
  if (images.numel() <= place_.numel()) send(images);
}

at::Tensor ImageFeed::bytes_on_device(const at::Tensor& images) {
  if (!holds(images)) send(images);
  if (!copies_under_way_.empty()) {
    copies_under_way_.back().done.block(stream_of_kernels());
  }
  return place_.narrow(0, 0, images.numel()).view(images.sizes());
}

c10::Stream ImageFeed::stream_of_kernels() const {
  return c10::impl::VirtualGuardImpl(device_.device().type())
      .getStream(device_.device());
}

void ImageFeed::send(const at::Tensor& images) {
  while (!copies_under_way_.empty() && copies_under_way_.front().done.query()) {
    copies_under_way_.pop_front();
  }
  content_.reset();
  make_room(images.numel());
  // Whoever reads the place has been told to by now.
  c10::Event read(device_.device().type());
  read.record(stream_of_kernels());
  read.block(*copies_);
  c10::Event done(device_.device().type());
  {
    const c10::StreamGuard on(*copies_);
    place_.narrow(0, 0, images.numel())
        .view(images.sizes())
        .copy_(images, /*non_blocking=*/true);
  }
  done.record(*copies_);
  copies_under_way_.push_back({std::move(done), images});
  content_ = images;
}

void ImageFeed::make_room(int64_t bytes) {
  if (place_.defined() && place_.numel() >= bytes) return;
  for (const Copy& copy : copies_under_way_) copy.done.synchronize();
  copies_under_way_.clear();
  place_.reset();
  const MemoryCategoryScope loaded(MemoryCategory::kOther);
  place_ = at::empty({bytes}, device_.options(at::kByte));
}

bool ImageFeed::holds(const at::Tensor& images) const {
  return content_.defined() &&
         content_.const_data_ptr() == images.const_data_ptr() &&
         content_.sizes() == images.sizes();
}

}  // namespace headroom
