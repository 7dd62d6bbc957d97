// DeviceApi: everything that the program needs of CUDA devices, without CUDA's
// headers.
//
// All CUDA code is in libheadroom_cuda.so, which is loaded at run time
// (compute_device.h). Without this library, the program uses the CPU. Both the
// program and the library include this file. They pass tensors, communicators
// and exceptions directly, because LibTorch is one library in the process and
// types are compared by name.
//
// The plugin's objects exist until the process ends, and any thread may use
// them unless stated otherwise. Errors: Error for a device that does not exist;
// c10::Error from CUDA.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/activations/memory_meter.h"
#include "parallel/base/memory_category.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/device_ranks.h"
#include "parallel/devices/device_code.h"

namespace headroom::kernels {
class DeviceKernels;  // worker/kernels/device_kernels.h
}

namespace headroom::devices {

// How the ranks of a generation communicate over their CUDA devices.
struct DeviceCommunicatorOptions {
  int device = 0;
  // Time limit for connecting, and for each operation, counted from the moment
  // when the device reaches the operation. Increase it on slow networks.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // Allows two ranks on one device. This is for tests only: the ranks take
  // turns, and NCCL needs a different NCCL_HOSTID in each process, which the
  // agent sets for its workers.
  bool may_share_devices = false;
  // If set, called on the issuing thread after each operation is queued, with
  // the operations' stream. Work that this function queues on the stream counts
  // as part of the operation. Benchmarks use it to add the time of simulated
  // peers (ghost_ranks.h).
  std::function<void(const c10::Stream& operations)> behind_each = {};
};

// DeviceGraph: a CUDA graph. Device work is captured once and then replayed as
// a whole many times, so that the host launches each kernel only once.
//
// Captured work keeps its addresses: memory that was allocated before the
// capture must stay in place. Numbers passed from the host keep the values that
// they had during the capture. A graph keeps all memory that was allocated
// during its capture, even if that was released; tensors in this memory must be
// destroyed before the graph.
//
// All calls are made from the thread that queues the device's work. Errors:
// c10::Error if the captured work contains an operation that cannot be
// captured: a wait of the host for the device, or a copy from or to the host.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Captures the work that the thread queues on its stream until end_capture(),
  // without running it. If `before` is not nullptr, this graph shares the
  // memory of the graph `before`. That graph was captured earlier, must exist
  // as long as this graph, and is replayed before this graph. Only tensors that
  // are still held keep their values between the two replays.
  virtual void begin_capture(DeviceGraph* before) = 0;
  virtual void end_capture() = 0;
  // Ends a failed capture (end_capture() may have failed too) and releases its
  // memory. Device and thread are then in the same state as before
  // begin_capture(). Does nothing if no capture has begun.
  virtual void abandon_capture() noexcept = 0;
  virtual void replay() = 0;
};

// Increase it with every change of this file or a file it includes.
inline constexpr int kDeviceApiVersion = 14;

// Functions of the program for the plugin. The plugin has its own copy of every
// library of the project that it links, so it accesses state that must exist
// once per process through these functions.
struct HostServices {
  // Calls MemoryCategoryScope::of_device() with the program's scopes.
  MemoryCategory (*category_of)(int64_t bytes);
  // Begin and end a PeerWait of the program. Any thread may call them.
  void (*begin_peer_wait)();
  void (*end_peer_wait)();
  // Calls PeerNews::a_peer_works() of the program.
  bool (*a_peer_works)() = [] { return false; };
};

struct DeviceInfo {
  int index = 0;
  std::string uuid;  // "GPU-f2b1c3…", as in NVML and nvidia-smi
  std::string name;
  std::string bus_address;     // on the PCI bus: "0000:1b:00.0"
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  DeviceCode code;         // cards for which the plugin has code; may be empty
  std::vector<int> peers;  // devices whose memory this device can access
};

// Memory in use on a device, as reported by its driver.
struct DeviceUse {
  int64_t used_bytes = 0;  // bytes of all processes
  // Bytes of this process, context included. No value if the driver does not
  // report them, or lists this process under another number (containers).
  std::optional<int64_t> own_bytes;
};

// The caching allocator of one device. Bytes are as requested, not rounded. A
// block counts until the allocator can use it again.
class DeviceMemory : public activations::MemoryMeter {
 public:
  // Bytes of the segments that the allocator holds on the device, unused parts
  // included. set_limit() limits this number, and is checked when a segment is
  // added. The context, libraries and NCCL are not included.
  virtual int64_t reserved_bytes() const = 0;
  virtual int64_t peak_reserved_bytes() const = 0;
  // How often the allocator had to free all unused segments to find room.
  virtual int64_t retries() const = 0;
  // Counts `bytes`, the memory that a graph keeps, as in use until
  // let_go(owner).
  virtual void hold(const void* owner, int64_t bytes) = 0;
  virtual void let_go(const void* owner) = 0;
  // One event of the allocator's history.
  struct HistoryEvent {
    enum class Action {
      kAllocate,
      kFree,
      kSegmentAllocate,
      kSegmentFree,
      kFull
    };
    Action action = Action::kAllocate;
    uint64_t address = 0;  // the block's address; for kFull the free bytes
    int64_t bytes = 0;
    uint64_t stream = 0;
    int64_t microseconds = 0;
  };
  // From now on keeps the last `most_events` events; 0 stops recording.
  virtual void record_history(int64_t most_events) = 0;
  virtual std::vector<HistoryEvent> history() const = 0;

  // Refuses one allocation as if the device were full, for tests (--inject
  // oom@): the n-th from now on (1: the next); 0 disarms. Some allocators can
  // only be prevented from adding segments: they treat every `n` as 1, and
  // refuse the next allocation that needs a new segment.
  virtual void fail_allocation(int64_t n) = 0;
  // Allocations left, including the one to be refused; 0 if none is armed.
  virtual int64_t pending_failure() const = 0;

 protected:
  ~DeviceMemory() = default;
};

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  // LibTorch's type of all devices of this plugin.
  virtual c10::DeviceType device_type() const = 0;
  // 0 if there is no device or no driver.
  virtual int device_count() const = 0;
  // Creates no context.
  virtual DeviceInfo describe(int device) const = 0;
  // Bytes of the device that no process uses. Creates the device's context in
  // this process, which takes hundreds of MB; NVML (parallel/nvml) does not.
  virtual int64_t free_bytes(int device) const = 0;
  // Creates no context. Returns no value if the driver does not report the use.
  virtual std::optional<DeviceUse> use_of(int device) const = 0;
  virtual DeviceMemory& memory(int device) = 0;
  virtual kernels::DeviceKernels& kernels() = 0;
  // Allocates page-locked host memory, from which the device can copy by
  // itself. Throws Error if the host cannot lock more pages.
  virtual std::shared_ptr<void> lock_pages(int64_t bytes) = 0;
  // Moves the calling thread from the default stream to a stream on which
  // graphs can be captured. Work that the thread queues later runs after the
  // work that it has queued already.
  virtual void leave_default_stream(int device) = 0;
  // REQUIRES: leave_default_stream() was called on each capturing thread.
  virtual std::unique_ptr<DeviceGraph> make_graph(int device) = 0;
  // Creates the source of NCCL communicators for a generation's ranks, one
  // device each. Collective over `world`, which has all the ranks and is used
  // during this call only. Throws CommunicationError; Error if two ranks are on
  // one device and `may_share_devices` is false.
  virtual std::shared_ptr<collectives::DeviceRanks> connect_ranks(
      collectives::Communicator& world,
      const DeviceCommunicatorOptions& options) = 0;
  // The driver's message if the device has an error that lasts until the
  // process ends: work queued by this process is no longer executed. Returns no
  // value while the device works. Does not wait for the device.
  virtual std::optional<std::string> failure(int device) const = 0;
  // Breaks the device for this process, for tests (--inject device_error@): a
  // kernel traps, either at once on the thread's stream or in place of a
  // communicator's next operation.
  enum class BreakIn { kCurrentStream, kNextCollective };
  virtual void break_device(int device, BreakIn where) = 0;
  // Aborts all communicators, including those being created, because a peer was
  // lost: threads stop waiting for it. This call does not wait.
  virtual void abort_communicators() = 0;
};

// The function that the plugin exports. Returns nullptr if the plugin was built
// for another version.
using DeviceApiFactory = DeviceApi* (*)(int version, const HostServices*);
inline constexpr const char* kDeviceApiFactory = "headroom_device_api";

}  // namespace headroom::devices
