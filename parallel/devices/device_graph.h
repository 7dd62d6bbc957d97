// DeviceGraph: work of a device that is remembered once and then given to it
// as a whole, over and over: a CUDA graph. What the host spends on each kernel
// is spent once.
//
// Whatever is remembered has its addresses for ever: what it reads and writes
// outside its own memory must stay where it is, and numbers that the host
// handed in stay what they were.
//
// Ownership: keeps the memory that was taken while it was captured, whether or
// not it was given back since; tensors that are left of it end before it does.
// Threads: all calls from the thread that gives the device its work.
// Errors: c10::Error where something was captured that cannot be: the host
// waiting for the device, a copy from or to the host.
#pragma once

namespace headroom::devices {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // From here to end_capture() what the thread gives its stream is remembered
  // and not done. With `before`, which was captured earlier and lives as long
  // as this, memory is shared: the two are replayed in that order, and nothing
  // else of either is wanted in between than tensors that are still held.
  virtual void begin_capture(DeviceGraph* before) = 0;
  virtual void end_capture() = 0;
  virtual void replay() = 0;
};

}  // namespace headroom::devices
