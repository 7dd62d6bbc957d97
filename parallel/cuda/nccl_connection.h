// NcclConnection: one ncclComm_t, its stream, and the thread that watches it.
//
// The communicator is non-blocking: every NCCL call returns at once and is
// polled, so it can be aborted. Collectives run on one stream per device, which
// all communicators of the process share, and messages of one direction on a
// stream of their own. They run after the work queued on the
// issuing stream; that stream waits for an operation when the caller does.
// Every 20 ms the watch thread checks for NCCL's errors, for an operation over
// its time limit, and for a failure of its family (NcclFamily). If it finds
// one, it aborts the communicator, which ends kernels that wait for a peer.
// While an operation has begun on the device and has not ended, the peers are
// late, so the watch holds a PeerWait: the host may be waiting in a read after
// the operation, or because the device accepts no more work. The watch never
// ends the process.
//
// Devices, streams and events are LibTorch's, of any device type: CUDA, or the
// tests' device with a substitute for NCCL.
//
// A communicator shares the connection with its operations in flight. One
// thread issues and waits; the watch is a second thread. NCCL is called only
// with the lock held. Errors, thrown by every call after the first failure:
// CommunicationError if a peer failed or is late; LocalCommunicationError with
// advice (nccl_advice.h) if this process could not do its part; Error (exit 5)
// if the device has no memory for NCCL.
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

#include "parallel/cuda/nccl_limits.h"
#include "parallel/cuda/operation_watch.h"
#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// NcclFamily: the communicators of one generation. When one communicator fails,
// all of them end. abort_all() ends them when a peer is lost, even while they
// connect. Threads: any.
class NcclFamily {
 public:
  // `failure_word`: memory for an int32_t that the device can read.
  static std::shared_ptr<NcclFamily> make(std::shared_ptr<void> failure_word);

  enum class Cause {
    kPeer,        // a peer failed or is late
    kOwn,         // this process failed
    kFullDevice,  // the device had no memory for NCCL
  };
  // Only the first reason is kept.
  void fail(const std::string& reason, Cause cause = Cause::kPeer);
  bool has_failed() const { return has_failed_; }
  [[noreturn]] void throw_failure(int rank, int size) const;
  // Tells work on the device that results of operations may be invalid. Called
  // before a communicator is aborted, because that ends kernels early.
  void mark_failure();
  // As Communicator::failure_word().
  std::shared_ptr<const int32_t> failure_word() const { return failure_word_; }

  // Ends all families of this process.
  static void abort_all(const std::string& reason);

 private:
  explicit NcclFamily(std::shared_ptr<void> failure_word);

  const std::shared_ptr<int32_t> failure_word_;
  mutable std::mutex mutex_;
  std::string reason_;          // guarded by mutex_
  Cause cause_ = Cause::kPeer;  // guarded by mutex_
  std::atomic<bool> has_failed_{false};
};

// Calls `hook` once, with the stream of the next operation that any connection
// issues, before NCCL gets the operation. Tests use it to break the device at
// this point.
void before_next_operation(std::function<void(const c10::Stream&)> hook);

// Event at the end of an operation on the device.
using OperationEnd = std::shared_ptr<c10::Event>;

class NcclConnection {
 public:
  struct Place {
    c10::Device device = c10::kCPU;
    int rank = 0;  // set by NCCL once connected
    int size = 1;
    int channels = kMostNcclChannels;
    bool has_own_stream = false;  // for messages
    std::chrono::milliseconds timeout = std::chrono::seconds(20);
    devices::HostServices services = {};
    std::shared_ptr<NcclFamily> family;
    // As DeviceCommunicatorOptions::behind_each.
    std::function<void(const c10::Stream&)> behind_each = {};
  };

  // Calls `start(config, communicator)` and waits until the communicator is
  // created.
  using Start = std::function<ncclResult_t(ncclConfig_t*, ncclComm_t*)>;
  NcclConnection(const Place& place, const Start& start);
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  // Queues `call` on the stream, after the work queued on the current stream.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  OperationEnd issue(const char* operation, const Call& call);

  // Makes the current stream wait for the operation.
  void order_behind(const OperationEnd& end);
  // Makes this thread wait for the operation.
  void wait_on_host(const OperationEnd& end, const char* operation);
  // Makes this thread wait for all issued operations.
  void synchronize();

  void throw_if_failed() const {
    if (place_.family->has_failed()) throw_failure();
  }

 private:
  [[noreturn]] void throw_failure() const {
    place_.family->throw_failure(place_.rank, place_.size);
  }
  c10::Stream current_stream() const;
  // REQUIRES, for the functions below: the lock is held.
  void settle(ncclResult_t result, const char* operation);
  void fail(const std::string& operation, ncclResult_t result);
  void abort();
  void wait_while_in_progress(ncclComm_t communicator, const char* operation);

  bool finalize();
  void look();
  void note_late_peers(bool are_late);

  void watch();

  Place place_;  // constant after construction
  const c10::Stream stream_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // nullptr once aborted
  OperationWatch operations_;
  bool peers_are_late_ = false;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread watch_;
};

}  // namespace headroom::cuda
