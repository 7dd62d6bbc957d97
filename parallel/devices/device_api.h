// DeviceApi: what the program asks of CUDA devices, without CUDA's headers.
//
// All CUDA code lies in libheadroom_cuda.so, which is loaded at run time
// (compute_device.h); a program on a machine without it stays on the CPU. Both
// sides include this file; tensors, communicators and errors cross it as they
// are, because LibTorch is one library of the process and types are compared by
// name.
//
// The plugin's objects live until the process ends, and any thread may use them
// unless said otherwise. Errors: Error for a device that does not exist;
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

namespace headroom::devices {

// How the ranks of a generation communicate over their CUDA devices.
struct DeviceCommunicatorOptions {
  int device = 0;
  // Limits each operation once the device comes to it, and connecting.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // Two ranks on one device are refused otherwise: they take turns, so it is
  // for tests only, and NCCL needs another NCCL_HOSTID in each process, which
  // the agent gives its workers.
  bool may_share_devices = false;
  // Called on the issuing thread behind each operation's call, with the stream
  // of the operations: what it gives that stream belongs to the operation.
  // Benchmarks add the time of peers that are not there (ghost_ranks.h).
  std::function<void(const c10::Stream& operations)> behind_each = {};
};

// A CUDA graph: work of a device that is captured once and then replayed as a
// whole, over and over, so that the host spends its time on each kernel once.
//
// Captured work keeps its addresses: what it reads and writes outside its own
// memory must stay where it is, and numbers that the host handed in stay what
// they were. A graph keeps the memory that was allocated while it was captured,
// whether or not it was released since; tensors in it must end before the
// graph.
//
// All calls come from the thread that gives the device its work. Errors:
// c10::Error where something was captured that cannot be: the host waiting for
// the device, a copy from or to the host.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Captures, without doing it, what the thread gives its stream until
  // end_capture(). Memory is shared with `before`, unless null, which was
  // captured earlier and lives as long as this: the two are replayed in that
  // order, and only tensors that are still held keep their values in between.
  virtual void begin_capture(DeviceGraph* before) = 0;
  virtual void end_capture() = 0;
  // Ends a capture in which something failed, end_capture() itself included,
  // and releases its memory: the device and the thread are as before it. Does
  // nothing where none has begun.
  virtual void abandon_capture() noexcept = 0;
  virtual void replay() = 0;
};

// Must be raised with every change of this file or of what it includes.
inline constexpr int kDeviceApiVersion = 12;

// What must not exist twice in the process: the plugin has its own copy of
// every library of the project that it was linked with.
struct HostServices {
  // MemoryCategoryScope::of_device, with the program's scopes.
  MemoryCategory (*category_of)(int64_t bytes);
  // A PeerWait of the program from begin to end. Any thread may hold one.
  void (*begin_peer_wait)();
  void (*end_peer_wait)();
  // The program's PeerNews.
  bool (*a_peer_works)() = [] { return false; };
};

struct DeviceInfo {
  int index = 0;
  std::string uuid;  // "GPU-f2b1c3…", as NVML and nvidia-smi write it
  std::string name;
  std::string bus_address;     // on the PCI bus: "0000:1b:00.0"
  int compute_capability = 0;  // 9.0 as 90
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  DeviceCode code;         // the plugin's; empty if it needs none
  std::vector<int> peers;  // devices whose memory it reads and writes directly
};

// How much of a device's memory is in use, as its driver tells.
struct DeviceUse {
  int64_t used_bytes = 0;  // bytes that all processes use
  // Bytes that this process uses, context included; nothing where the driver
  // does not tell, or does not know this process by its number (containers).
  std::optional<int64_t> own_bytes;
};

// The caching allocator of one device. Bytes are those that were asked for, not
// rounded; a block counts until it can be used again.
class DeviceMemory : public activations::MemoryMeter {
 public:
  // What the allocator holds of the device for this process: segments, their
  // unused parts included. set_limit bounds this number, tested when a segment
  // is added; context, libraries and NCCL are outside it.
  virtual int64_t reserved_bytes() const = 0;
  virtual int64_t peak_reserved_bytes() const = 0;
  // How often it had to give everything unused back to find room.
  virtual int64_t retries() const = 0;
  // Counts memory that a graph keeps without a tensor in it as in use, under
  // the name `owner`, until let_go(owner).
  virtual void hold(const void* owner, int64_t bytes) = 0;
  virtual void let_go(const void* owner) = 0;
  // One line of the allocator's history.
  struct HistoryEvent {
    enum class Action {
      kAllocate,
      kFree,
      kSegmentAllocate,
      kSegmentFree,
      kFull
    };
    Action action = Action::kAllocate;
    uint64_t address = 0;  // kFull: bytes that were free
    int64_t bytes = 0;
    uint64_t stream = 0;
    int64_t microseconds = 0;
  };
  // Keeps the last `most_events` events from now on; 0 ends it.
  virtual void record_history(int64_t most_events) = 0;
  virtual std::vector<HistoryEvent> history() const = 0;

  // Refuses one allocation as on a full device, for tests (--inject oom@): one
  // from the `n`-th on (1: the next); 0 disarms. An allocator that can only be
  // kept from adding segments takes every `n` for 1, and refuses what needs
  // one.
  virtual void fail_allocation(int64_t n) = 0;
  // Allocations up to the one that is refused, itself included; 0 after that,
  // or where none is armed.
  virtual int64_t pending_failure() const = 0;

 protected:
  ~DeviceMemory() = default;
};

class DeviceKernels;  // parallel/devices/device_kernels.h

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  // LibTorch's type of all of its devices.
  virtual c10::DeviceType device_type() const = 0;
  // 0 where there is no device or no driver.
  virtual int device_count() const = 0;
  // Creates no context.
  virtual DeviceInfo describe(int device) const = 0;
  // Free bytes of the device, others' use taken off. Creates the device's
  // context in this process, hundreds of MB; NVML (parallel/nvml) does not.
  virtual int64_t free_bytes(int device) const = 0;
  // Creates no context. Nothing where the driver does not tell.
  virtual std::optional<DeviceUse> use_of(int device) const = 0;
  virtual DeviceMemory& memory(int device) = 0;
  virtual DeviceKernels& kernels() = 0;
  // Host memory whose pages stay where they are, so that copies from it need
  // no host. Throws Error where there is none.
  virtual std::shared_ptr<void> lock_pages(int64_t bytes) = 0;
  // Gives the calling thread's work to a stream that graphs can be captured on
  // from now on, after what it has been given before.
  virtual void leave_default_stream(int device) = 0;
  // REQUIRES: leave_default_stream() on the threads that capture.
  virtual std::unique_ptr<DeviceGraph> make_graph(int device) = 0;
  // What makes the communicators of a generation's ranks, one device each, over
  // NCCL. Collective over `world`, all of its ranks, which is used for this
  // call alone. Throws CommunicationError; Error where two ranks are on one
  // device, unless that is allowed.
  virtual std::shared_ptr<collectives::DeviceRanks> connect_ranks(
      collectives::Communicator& world,
      const DeviceCommunicatorOptions& options) = 0;
  // The driver's words where it reports an error of the device that stays until
  // the process ends: nothing that this process gives it is done any more.
  // Nothing while it works. Does not wait for the device.
  virtual std::optional<std::string> failure(int device) const = 0;
  // Breaks the device for this process, for tests (--inject device_error@): a
  // kernel traps, at once on the thread's stream, or in the place of the next
  // operation of a communicator.
  enum class BreakIn { kCurrentStream, kNextCollective };
  virtual void break_device(int device, BreakIn where) = 0;
  // Ends all communicators that there are, also while they are made: a peer was
  // lost, and whoever waits for it is freed. Does not wait.
  virtual void abort_communicators() = 0;
};

// What the plugin exports: null where it was built for another version.
using DeviceApiFactory = DeviceApi* (*)(int version, const HostServices*);
inline constexpr const char* kDeviceApiFactory = "headroom_device_api";

}  // namespace headroom::devices
