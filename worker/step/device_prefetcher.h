// DevicePrefetcher: copies loaded images to the device while it computes.
//
// The device has a staging buffer for the bytes of one micro-batch. As soon as
// the network's input has been made from them, the bytes of the next
// micro-batch are copied into the buffer, on a separate stream. After the last
// micro-batch the first one of the next batch is copied, if the loader has it
// ready. The host does not wait for the copies.
//
// Images should be in page-locked memory: while the device copies from other
// memory, the host waits.
//
// Packed samples are copied to a second buffer, a few at a time, and the device
// renders the images from them on the same stream.
//
// On the CPU there is no buffer and no copy.
//
// Ownership: keeps a batch's images until they have been copied.
// Errors: c10::OutOfMemoryError in input(), which may then be called again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "parallel/devices/compute_device.h"
#include "parallel/plan/batch_split.h"
#include "worker/data/loader/batch.h"

namespace headroom::step {

// Converts loaded images to the network's input: [n, H, W, C] uint8 or uint16
// -> [n, C, H, W] of the type and on the device of `options`, in channels-last
// memory (no pixel moves). Values are divided by the largest level in float32,
// even if the run is in float64, so that both precisions start from the same
// numbers. The loaded bytes are copied to the device before the conversion.
// `into`: a tensor of this shape on a device, which is filled and returned.
at::Tensor network_input(const at::Tensor& images,
                         const at::TensorOptions& options,
                         const std::optional<at::Tensor>& into = {});

// Returns a function that allocates batches for `device` in page-locked memory
// and reuses their buffers; an empty function for the CPU.
loader::AllocateImages page_locked_images(const devices::ComputeDevice& device);

class DevicePrefetcher {
 public:
  // Returns the batch after the current batch; null if it is not ready.
  using FollowingBatch = std::function<const loader::Batch*()>;
  DevicePrefetcher(const devices::ComputeDevice& device,
                   FollowingBatch following);
  ~DevicePrefetcher();
  DevicePrefetcher(const DevicePrefetcher&) = delete;
  DevicePrefetcher& operator=(const DevicePrefetcher&) = delete;

  // The network's input for micro-batch `part` of `parts`; may be called again.
  // Begins to copy the next micro-batch. `into`: as in network_input().
  at::Tensor input(const loader::Batch& batch,
                   const std::vector<plan::SampleRange>& parts, size_t part,
                   const at::TensorOptions& options,
                   const std::optional<at::Tensor>& into = {});
  // Only begins the next copy: for a caller that already has the input.
  void send_following(const loader::Batch& batch,
                      const std::vector<plan::SampleRange>& parts, size_t part);

 private:
  // Some of a batch's images, and the bytes that are copied for them.
  struct Part {
    at::Tensor images;
    at::Tensor bytes;                   // the images, or packed samples
    std::vector<int64_t> packed_bytes;  // size of each packed sample
    bool is_packed = false;
  };
  static Part part_of(const loader::Batch& batch,
                      const plan::SampleRange& range);

  at::Tensor bytes_on_device(const Part& part);
  // A view of the staging buffer in the shape of `images`.
  at::Tensor place_of(const at::Tensor& images) const;
  void send(const Part& part);
  void send_ahead(const Part& part);
  void render(const Part& part, const at::Tensor& images);
  bool has_room(const Part& part) const;
  void make_room(const Part& part);
  bool holds(const Part& part) const;
  c10::Stream stream_of_kernels() const;

  const devices::ComputeDevice device_;
  const FollowingBatch following_;
  std::optional<c10::Stream> copies_;  // undefined on the CPU
  at::Tensor staging_buffer_;          // uint8
  at::Tensor staging_;                 // packed samples that are being rendered
  at::Tensor content_;  // host bytes whose copy the buffer holds or will hold
  struct Copy {
    c10::Event done;
    at::Tensor bytes;
  };
  std::deque<Copy> copies_under_way_;
};

}  // namespace headroom::step
