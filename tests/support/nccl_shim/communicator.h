// ncclComm: a communicator of the shim. A call first returns "in progress" and
// is then executed by a thread of its own, which queues a collective on the
// stream. The collective ends when all ranks have reached it, or when it is
// aborted.
//
// As in NCCL, two ranks on the same device of one host (NCCL_HOSTID) are
// refused. Buffers are allocated outside of LibTorch's allocator, at the first
// collective or, with NCCL_RUNTIME_CONNECT=0, when the communicator is created.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/support/nccl_shim/faults.h"
#include "tests/support/nccl_shim/meeting.h"
#include "tests/support/test_device/stream_handle.h"

namespace headroom::nccl_shim {

void set_hooks(const TestDeviceHooks& hooks);
const TestDeviceHooks& hooks();

// The text of ncclGetLastError.
void note_error(const std::string& text);
const char* last_error();

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  static constexpr int64_t kBufferBytes = 1 << 20;

  struct Place {
    std::string name;
    int rank = 0, size = 1;
    int device = 0;
  };
  explicit Communicator(const Place& place);
  ~Communicator();

  const Place& place() const { return place_; }
  ncclResult_t state() const { return state_; }

  // Begins to connect with the other ranks.
  ncclResult_t connect();

  // `run` runs on the device, in the stream's order. It returns false if it was
  // stopped.
  struct Collective {
    const char* call;
    int64_t count = 0, type = 0, operation = 0;
    std::function<bool()> run;
  };
  ncclResult_t begin(const Collective& collective,
                     const TestStreamHandle* stream);

  ncclResult_t finalize();
  void abort();

  bool meet() {
    return meeting_->meet([this] { return is_stopped(); });
  }
  bool is_stopped() const { return stopped_; }
  Meeting& meeting() { return *meeting_; }

 private:
  // Runs the call in a thread of its own, with the fault that is set for
  // `call`.
  ncclResult_t start(const char* call,
                     const std::function<ncclResult_t()>& run);
  ncclResult_t meet_first();
  ncclResult_t take_buffers();
  void do_on_device(const Collective& collective, bool hangs);
  void end_call();

  const Place place_;
  std::unique_ptr<Meeting> meeting_;
  std::atomic<bool> stopped_{false};
  std::atomic<ncclResult_t> state_{ncclSuccess};
  // The number of collectives on the device that have not ended.
  std::atomic<int64_t> under_way_{0};
  int64_t bytes_ = 0;
  bool is_full_ = false, hangs_ = false;  // set by faults of the current call
  std::thread call_;
};

}  // namespace headroom::nccl_shim
