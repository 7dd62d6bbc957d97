// PageLockedBuffers: host memory that a device copies from by itself, while
// both sides compute.
//
// Locking pages takes the host milliseconds and waits for the device, so
// buffers are kept and used again: there are never more of them than were held
// at one time. A buffer goes back when its last holder releases it, which may
// be after this object is gone.
//
// Errors: Error (exit 5) where the host has no more pages to lock.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/devices/device_api.h"

namespace headroom::devices {

class PageLockedBuffers {
 public:
  explicit PageLockedBuffers(DeviceApi& api);

  // A buffer of at least `bytes`, aligned for any type.
  std::shared_ptr<void> take(int64_t bytes);

  // Bytes of all buffers, held and free.
  int64_t locked_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace headroom::devices
