// DevicePrefetcher: copies loaded images to the device while it computes.
//
// The device has a staging buffer for the bytes of one micro-batch. As soon as
// the network's input has been made from them, the bytes of the next
// micro-batch are copied into the buffer, on a stream beside that of the
// kernels; after the last of a batch, those of the following batch, where the
// loader has it ready. The host waits for none of it.
//
// Batches' images should be in page-locked memory: the device reads other
// memory only while the host waits.
//
// Where a batch has its samples packed, their bytes go to a second buffer, a
// few at a time, and the device renders the images from them on that stream.
//
// On the CPU there is no buffer and no copy.
//
// Ownership: keeps a batch's images until they have been copied.
// Errors: c10::OutOfMemoryError out of input(), which may then be asked again.
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

// Loaded images as the network's input: [n, H, W, C] uint8 or uint16 ->
// [n, C, H, W] of the type and on the device of `options`, in channels-last
// memory (no pixel moves), divided by the largest level in float32 also where
// the run is in float64, so that both precisions start from the same numbers.
// They are copied as they were loaded. On a
// device `into`, such a map, is filled and returned.
at::Tensor network_input(const at::Tensor& images,
                         const at::TensorOptions& options,
                         const std::optional<at::Tensor>& into = {});

// Allocates batches for that device in page-locked memory, in buffers that are
// used again. Empty on the CPU.
loader::AllocateImages page_locked_images(const devices::ComputeDevice& device);

class DevicePrefetcher {
 public:
  // Returns the batch after the present one, or null if it is not ready.
  // May be empty.
  using FollowingBatch = std::function<const loader::Batch*()>;
  DevicePrefetcher(const devices::ComputeDevice& device,
                   FollowingBatch following);
  ~DevicePrefetcher();
  DevicePrefetcher(const DevicePrefetcher&) = delete;
  DevicePrefetcher& operator=(const DevicePrefetcher&) = delete;

  // The network's input for one of the batch's micro-batches; may be asked for
  // again. Begins to copy the one that follows. `into` as network_input's.
  at::Tensor input(const loader::Batch& batch,
                   const std::vector<plan::SampleRange>& parts, size_t part,
                   const at::TensorOptions& options,
                   const std::optional<at::Tensor>& into = {});
  // Only begins the copy: for a caller that has the input already.
  void send_following(const loader::Batch& batch,
                      const std::vector<plan::SampleRange>& parts, size_t part);

 private:
  // Some of a batch's images, and the bytes that are sent for them.
  struct Part {
    at::Tensor images;
    at::Tensor bytes;                   // the images, or packed samples
    std::vector<int64_t> packed_bytes;  // each sample's
    bool is_packed = false;
  };
  static Part part_of(const loader::Batch& batch,
                      const plan::SampleRange& range);

  at::Tensor bytes_on_device(const Part& part);
  // The staging buffer as such images.
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
  std::optional<c10::Stream> copies_;  // none on the CPU
  at::Tensor staging_buffer_;          // bytes
  at::Tensor staging_;  // the packed samples that are being rendered into it
  at::Tensor content_;  // the host's bytes that are in it, or being copied
  struct Copy {
    c10::Event done;
    at::Tensor bytes;
  };
  std::deque<Copy> copies_under_way_;
};

}  // namespace headroom::step
