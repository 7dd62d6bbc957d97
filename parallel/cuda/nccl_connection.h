// NcclConnection: one ncclComm_t, its stream, and the thread that watches it.
//
// The communicator is non-blocking: every call of NCCL returns at once and is
// polled, so that it can be aborted. Operations run on one stream per device,
// shared by all communicators of the process, behind the stream that issued
// them; that stream waits for them where the caller does. The watch looks every
// 20 ms for NCCL's own errors, for an operation over its time limit and for the
// end of its family (NcclFamily); then it aborts the communicator, which
// ends kernels that wait for a peer. While an operation has begun on the device
// and is not done, it is peers that are late: the watch says so to whoever
// watches over the process (PeerWait), wherever the host waits meanwhile: in a
// read behind the operation, or because the device takes no more work. It never
// ends the process.
//
// Devices, streams and events are LibTorch's of any type: CUDA's, or those of
// the tests' device, whose streams a stand-in for NCCL knows.
//
// A communicator shares it with its operations under way. One thread issues and
// waits; the watch is the second. NCCL is entered under the lock only. Errors,
// from the first failure on, for every call: CommunicationError where a peer
// failed or is late; LocalCommunicationError where NCCL says that this process
// could not do its part, with what helps (nccl_advice.h); Error (exit 5) where
// NCCL found no memory on the device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "parallel/cuda/operation_watch.h"
#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// The communicators of one generation, of all ranks and of some. The first
// failure of one is the end of all, and whoever learns that a
// peer is lost ends them (abort_all), also while they connect. Threads: any.
class NcclFamily {
 public:
  static std::shared_ptr<NcclFamily> make();

  enum class Cause {
    kPeer,        // a peer failed, is late, or was lost
    kOwn,         // this process could not do its part
    kFullDevice,  // the device had no memory for NCCL
  };
  // The first reason stays.
  void fail(const std::string& reason, Cause cause = Cause::kPeer);
  bool has_failed() const { return has_failed_; }
  [[noreturn]] void throw_failure(int rank, int size) const;

  // Ends all that live in this process.
  static void abort_all(const std::string& reason);

 private:
  NcclFamily() = default;

  mutable std::mutex mutex_;
  std::string reason_;          // guarded
  Cause cause_ = Cause::kPeer;  // guarded
  std::atomic<bool> has_failed_{false};
};

// Calls `hook` once, with the stream of the next operation that any connection
// issues, before NCCL is given it: a test breaks the device there.
void before_next_operation(std::function<void(const c10::Stream&)> hook);

// The end of an operation, on the device.
using OperationEnd = std::shared_ptr<c10::Event>;

class NcclConnection {
 public:
  struct Place {
    c10::Device device = c10::kCPU;
    int rank = 0;  // these two are NCCL's word once connected
    int size = 1;
    std::chrono::milliseconds timeout = std::chrono::seconds(20);
    devices::HostServices services = {};
    std::shared_ptr<NcclFamily> family;
    // DeviceCommunicatorOptions::behind_each.
    std::function<void(const c10::Stream&)> behind_each = {};
  };

  // `start(config, communicator)` begins to make the communicator. Waits until
  // it is made.
  using Start = std::function<ncclResult_t(ncclConfig_t*, ncclComm_t*)>;
  NcclConnection(const Place& place, const Start& start);
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  // Puts `call` on the stream, behind what the current stream has to do.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  OperationEnd issue(const char* operation, const Call& call);

  // Makes the current stream wait for it.
  void order_behind(const OperationEnd& end);
  // Makes this thread wait for it.
  void wait_on_host(const OperationEnd& end, const char* operation);
  // Makes this thread wait for all that was issued.
  void synchronize();

  void throw_if_failed() const {
    if (place_.family->has_failed()) throw_failure();
  }

 private:
  [[noreturn]] void throw_failure() const {
    place_.family->throw_failure(place_.rank, place_.size);
  }
  c10::Stream current_stream() const;
  // All under the lock.
  void settle(ncclResult_t result, const char* operation);
  void fail(const std::string& operation, ncclResult_t result);
  void abort();
  void wait_while_in_progress(ncclComm_t communicator, const char* operation);

  bool finalize();
  void look();
  void note_late_peers(bool are_late);

  void watch();

  Place place_;  // never changed once made
  const c10::Stream stream_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // null once aborted
  OperationWatch operations_;
  bool peers_are_late_ = false;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread watch_;
};

}  // namespace headroom::cuda
