// NcclConnection: one ncclComm_t, its stream, and the thread that watches it.
//
// The communicator is non-blocking: every call of NCCL returns at once and is
// polled, so that it can be aborted. Operations run on one stream per device,
// shared by all communicators of the process, behind the stream that issued
// them; that stream waits for them where the caller does. The watch looks every
// 20 ms for NCCL's own errors and for an operation over its time limit; then it
// aborts the communicator, which ends kernels that wait for a peer. It never
// ends the process.
//
// A communicator shares it with its operations under way. One thread issues and
// waits; the watch is the second. NCCL is entered under the lock only. Errors:
// CommunicationError from the first failure on, for every call.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "parallel/cuda/operation_watch.h"

namespace headroom::cuda {

// The end of an operation, on the device.
using OperationEnd = std::shared_ptr<at::cuda::CUDAEvent>;

class NcclConnection {
 public:
  struct Place {
    int device = 0;
    int rank = 0;  // these two are NCCL's word once connected
    int size = 1;
    std::chrono::milliseconds timeout = std::chrono::seconds(20);
  };

  // `start(config, communicator)` begins to make the communicator. Waits until
  // it is made.
  using Start = std::function<ncclResult_t(ncclConfig_t*, ncclComm_t*)>;
  NcclConnection(const Place& place, const Start& start);
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  const Place& place() const { return place_; }

  // Puts `call` on the stream, behind what the current stream has to do.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  OperationEnd issue(const char* operation, const Call& call);

  // Makes the current stream wait for it.
  void order_behind(const OperationEnd& end);
  // Makes this thread wait for it.
  void wait_on_host(const OperationEnd& end, const char* operation);

  // As Communicator::split(). Waits for all that was issued.
  std::shared_ptr<NcclConnection> split(int color, int key);

 private:
  [[noreturn]] void throw_failure() const;
  void throw_if_failed() const {
    if (failed_) throw_failure();
  }
  // All under the lock.
  void settle(ncclResult_t result, const char* operation);
  void fail(const std::string& reason);
  void wait_while_in_progress(ncclComm_t communicator, const char* operation);

  bool finalize();
  void look();

  void watch();

  Place place_;  // never changed once made
  const c10::cuda::CUDAStream stream_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // null once aborted
  OperationWatch operations_;
  std::string reason_;  // before failed_, and never changed after
  std::atomic<bool> failed_{false};
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread watch_;
};

}  // namespace headroom::cuda
