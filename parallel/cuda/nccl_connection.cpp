#include "parallel/cuda/nccl_connection.h"

#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <utility>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchEvery = std::chrono::milliseconds(20);
constexpr auto kPollEvery = std::chrono::microseconds(50);

// The one stream for the operations of all communicators of a device: NCCL's
// kernels on several streams could wait for each other.
c10::cuda::CUDAStream stream_of(int device) {
  static std::mutex mutex;
  static auto* const streams =
      new std::vector<std::pair<int, c10::cuda::CUDAStream>>;
  const std::lock_guard lock(mutex);
  for (const auto& [of, stream] : *streams) {
    if (of == device) return stream;
  }
  streams->emplace_back(device, c10::cuda::getStreamFromPool(
                                    /*isHighPriority=*/true,
                                    static_cast<c10::DeviceIndex>(device)));
  return streams->back().second;
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::string text_of(ncclResult_t result, ncclComm_t communicator) {
  std::string text = ncclGetErrorString(result);
  if (communicator == nullptr) return text;
  const char* const more = ncclGetLastError(communicator);
  return more == nullptr || *more == '\0' ? text : text + ": " + more;
}

}  // namespace

NcclConnection::NcclConnection(const Place& place, const Start& start)
    : place_(place),
      stream_(stream_of(place.device)),
      operations_(place.timeout) {
  const c10::cuda::CUDAGuard guard(
      static_cast<c10::DeviceIndex>(place_.device));
  {
    const std::lock_guard lock(mutex_);
    ncclConfig_t config = non_blocking();
    settle(start(&config, &communicator_), "connecting");
    settle(ncclCommUserRank(communicator_, &place_.rank), "connecting");
    settle(ncclCommCount(communicator_, &place_.size), "connecting");
  }
  watch_ = std::thread([this] { watch(); });
}

NcclConnection::~NcclConnection() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  if (watch_.joinable()) watch_.join();
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return;
  if (!finalize()) ncclCommAbort(communicator_);
}

// Returns false where the caller must abort: after an exception, since peers
// must not wait for what will not come, and where an operation does not end,
// since it waits for a lost peer.
bool NcclConnection::finalize() {
  if (std::uncaught_exceptions() > 0) return false;
  const Clock::time_point deadline = Clock::now() + place_.timeout;
  const auto wait_while = [&](const auto& is_open) {
    while (is_open() && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPollEvery);
    }
  };
  try {
    wait_while([&] {
      operations_.overdue(Clock::now());
      return !operations_.is_idle();
    });
  } catch (const std::exception&) {  // of the device: nothing ends any more
    return false;
  }
  if (!operations_.is_idle()) return false;
  ncclResult_t state = ncclCommFinalize(communicator_);
  wait_while([&] {
    return state == ncclInProgress &&
           ncclCommGetAsyncError(communicator_, &state) == ncclSuccess &&
           state == ncclInProgress;
  });
  return state == ncclSuccess && ncclCommDestroy(communicator_) == ncclSuccess;
}

void NcclConnection::throw_failure() const {
  throw CommunicationError("rank " + std::to_string(place_.rank) + " of " +
                           std::to_string(place_.size) + ", " + reason_);
}

void NcclConnection::fail(const std::string& reason) {
  if (failed_) return;
  reason_ = reason;
  failed_ = true;
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

void NcclConnection::wait_while_in_progress(ncclComm_t communicator,
                                            const char* operation) {
  const Clock::time_point deadline = Clock::now() + place_.timeout;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclInProgress) break;
    if (Clock::now() > deadline) {
      fail(std::string(operation) + ": no answer within " +
           std::to_string(place_.timeout.count()) + " ms");
      throw_failure();
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  if (state == ncclSuccess) return;
  fail(std::string(operation) + ": " + text_of(state, communicator));
  throw_failure();
}

void NcclConnection::settle(ncclResult_t result, const char* operation) {
  // Wrong arguments are this rank's alone and leave the communicator usable.
  HEADROOM_CHECK(
      result != ncclInvalidArgument,
      std::string(operation) + ": " + text_of(result, communicator_));
  if (result != ncclSuccess && result != ncclInProgress) {
    fail(std::string(operation) + ": " + text_of(result, communicator_));
    throw_failure();
  }
  wait_while_in_progress(communicator_, operation);
}

OperationEnd NcclConnection::issue(const char* operation, const Call& call) {
  throw_if_failed();
  const c10::cuda::CUDAGuard guard(
      static_cast<c10::DeviceIndex>(place_.device));
  at::cuda::CUDAEvent ready;
  ready.record();
  ready.block(stream_);
  const auto begin = std::make_shared<at::cuda::CUDAEvent>();
  const auto end = std::make_shared<at::cuda::CUDAEvent>();
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  begin->record(stream_);
  settle(call(communicator_, stream_.stream()), operation);
  end->record(stream_);
  operations_.add({operation, [begin] { return begin->query(); },
                   [end] { return end->query(); }});
  return end;
}

void NcclConnection::order_behind(const OperationEnd& end) {
  const c10::cuda::CUDAGuard guard(
      static_cast<c10::DeviceIndex>(place_.device));
  end->block(c10::cuda::getCurrentCUDAStream(
      static_cast<c10::DeviceIndex>(place_.device)));
  throw_if_failed();
}

void NcclConnection::wait_on_host(const OperationEnd& end,
                                  const char* operation) {
  while (!end->query()) {
    if (failed_) break;
    std::this_thread::sleep_for(kPollEvery);
  }
  // An aborted operation ends too.
  const std::lock_guard lock(mutex_);
  if (!failed_) wait_while_in_progress(communicator_, operation);
  throw_if_failed();
}

std::shared_ptr<NcclConnection> NcclConnection::split(int color, int key) {
  const c10::cuda::CUDAGuard guard(
      static_cast<c10::DeviceIndex>(place_.device));
  // NCCL wants the parent idle.
  at::cuda::CUDAEvent all;
  all.record(stream_);
  while (!all.query()) {
    throw_if_failed();
    std::this_thread::sleep_for(kPollEvery);
  }
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  return std::make_shared<NcclConnection>(
      place_, [&](ncclConfig_t* config, ncclComm_t* made) {
        config->splitShare = 1;
        const ncclResult_t result =
            ncclCommSplit(communicator_, color, key, made, config);
        if (result == ncclSuccess || result == ncclInProgress) {
          wait_while_in_progress(communicator_, "split");
        }
        return result;
      });
}

void NcclConnection::look() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) state = asked;
  if (state != ncclSuccess && state != ncclInProgress) {
    fail(text_of(state, communicator_));
  } else if (const auto late = operations_.overdue(Clock::now())) {
    fail(*late + ": not done after " + std::to_string(place_.timeout.count()) +
         " ms");
  }
}

void NcclConnection::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kWatchEvery, [this] { return is_ending_; })) {
    if (communicator_ == nullptr) continue;
    try {
      look();
    } catch (const std::exception& error) {  // of the device
      fail(error.what());
    }
  }
}

}  // namespace headroom::cuda
