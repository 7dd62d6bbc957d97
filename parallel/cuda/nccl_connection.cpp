#include "parallel/cuda/nccl_connection.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/collectives/device_ranks.h"
#include "parallel/collectives/local_communication_error.h"
#include "parallel/cuda/nccl_advice.h"

namespace headroom::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchEvery = std::chrono::milliseconds(20);
// NCCL answers within tens of microseconds, less than a sleep takes.
constexpr auto kSpinFor = std::chrono::microseconds(300);
constexpr auto kPollEvery = std::chrono::microseconds(50);

// Pauses between two polls: first yields for a while, then sleeps.
class Polling {
 public:
  // Returns true if it slept.
  bool pause() {
    if (Clock::now() - begin_ < kSpinFor) {
      std::this_thread::yield();
      return false;
    }
    std::this_thread::sleep_for(kPollEvery);
    return true;
  }
  Clock::time_point begin() const { return begin_; }

 private:
  const Clock::time_point begin_ = Clock::now();
};

// A PeerWait that starts at begin().
class HostWait {
 public:
  explicit HostWait(const devices::HostServices& services)
      : services_(services) {}
  ~HostWait() {
    if (has_begun_) services_.end_peer_wait();
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
  void begin() {
    if (!std::exchange(has_begun_, true)) services_.begin_peer_wait();
  }

 private:
  const devices::HostServices& services_;
  bool has_begun_ = false;
};

// The streams of all devices. The collectives of a device's communicators run
// on one; on several, NCCL's kernels could wait for each other. Each connection
// for messages has its own, which a later one uses again. They are never freed,
// because LibTorch never makes a new one in place of an old one.
class Streams {
 public:
  static Streams& instance() {
    static auto* const streams = new Streams;
    return *streams;
  }

  c10::Stream of_collectives(c10::Device device) {
    const std::lock_guard lock(mutex_);
    auto& known = collectives_[device.index()];
    if (!known) known = make(device);
    return *known;
  }
  c10::Stream take(c10::Device device) {
    const std::lock_guard lock(mutex_);
    std::vector<c10::Stream>& free = free_[device.index()];
    if (free.empty()) return make(device);
    const c10::Stream stream = free.back();
    free.pop_back();
    return stream;
  }
  void give_back(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    free_[stream.device_index()].push_back(stream);
  }

 private:
  c10::Stream make(c10::Device device) {
    using collectives::kMostMessageStreams, collectives::kStreamsOfDevice;
    if (++num_made_[device.index()] > kStreamsOfDevice) {
      constexpr int kMostPeers = kMostMessageStreams / 2;  // two directions
      throw Error(
          "nccl",
          cat("a card has ", kStreamsOfDevice,
              " streams, which are too few for messages with more than ",
              kMostPeers, " other ranks"),
          cat("split the model or the images over at most ", kMostPeers + 1,
              " cards"));
    }
    return c10::impl::VirtualGuardImpl(device.type())
        .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  }

  std::mutex mutex_;
  // Guarded by mutex_, by device.
  std::map<int, std::optional<c10::Stream>> collectives_;
  std::map<int, std::vector<c10::Stream>> free_;
  std::map<int, int> num_made_;
};

ncclConfig_t configuration(int channels) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = channels;
  return config;
}

std::string text_of(ncclResult_t result, ncclComm_t communicator) {
  std::string text = ncclGetErrorString(result);
  if (communicator == nullptr) return text;
  const char* const more = ncclGetLastError(communicator);
  return more == nullptr || *more == '\0' ? text : text + ": " + more;
}

// NCCL has no result code for a full device. It returns ncclRemoteError if a
// peer failed, and ncclInternalError for many causes.
NcclFamily::Cause cause_of(ncclResult_t result, const std::string& text) {
  const auto says = [&](const char* words) {
    return text.find(words) != std::string::npos;
  };
  if (result == ncclUnhandledCudaError &&
      (says("out of memory") || says("Failed to CUDA calloc") ||
       says("Failed to CUDA malloc"))) {
    return NcclFamily::Cause::kFullDevice;
  }
  return result == ncclUnhandledCudaError || result == ncclSystemError ||
                 result == ncclInvalidUsage
             ? NcclFamily::Cause::kOwn
             : NcclFamily::Cause::kPeer;
}

struct NextOperation {
  std::mutex mutex;
  std::function<void(const c10::Stream&)> hook;  // guarded by `mutex`
};

NextOperation& next_operation() {
  static auto* const next = new NextOperation;
  return *next;
}

void call_hook(const c10::Stream& stream) {
  std::function<void(const c10::Stream&)> hook;
  {
    const std::lock_guard lock(next_operation().mutex);
    hook.swap(next_operation().hook);
  }
  if (hook) hook(stream);
}

struct Families {
  std::mutex mutex;
  std::vector<std::weak_ptr<NcclFamily>> all;  // guarded by `mutex`
};

Families& families() {
  static auto* const known = new Families;
  return *known;
}

}  // namespace

void before_next_operation(std::function<void(const c10::Stream&)> hook) {
  const std::lock_guard lock(next_operation().mutex);
  next_operation().hook = std::move(hook);
}

NcclFamily::NcclFamily(std::shared_ptr<void> failure_word)
    : failure_word_(
          std::static_pointer_cast<int32_t>(std::move(failure_word))) {
  *failure_word_ = 0;
}

void NcclFamily::mark_failure() {
  std::atomic_ref<int32_t>(*failure_word_).store(1);
}

std::shared_ptr<NcclFamily> NcclFamily::make(
    std::shared_ptr<void> failure_word) {
  std::shared_ptr<NcclFamily> made(new NcclFamily(std::move(failure_word)));
  const std::lock_guard lock(families().mutex);
  std::erase_if(families().all,
                [](const auto& family) { return family.expired(); });
  families().all.push_back(made);
  return made;
}

void NcclFamily::fail(const std::string& reason, Cause cause) {
  const std::lock_guard lock(mutex_);
  if (has_failed_) return;
  reason_ = reason;
  cause_ = cause;
  has_failed_ = true;
}

void NcclFamily::throw_failure(int rank, int size) const {
  const std::lock_guard lock(mutex_);
  const std::string who = cat("rank ", rank, " of ", size, ", ");
  if (cause_ == Cause::kPeer) throw CommunicationError(who + reason_);
  if (cause_ == Cause::kOwn) throw LocalCommunicationError(who + reason_);
  throw Error("memory",
              who + "the device has no memory for NCCL's buffers: " + reason_,
              "use a smaller --batch or --img, or fewer processes on a device",
              ExitCode::kResource);
}

void NcclFamily::abort_all(const std::string& reason) {
  const std::lock_guard lock(families().mutex);
  for (const auto& known : families().all) {
    if (const auto family = known.lock()) family->fail(reason);
  }
}

NcclConnection::NcclConnection(const Place& place, const Start& start)
    : place_(place),
      stream_(place.has_own_stream
                  ? Streams::instance().take(place.device)
                  : Streams::instance().of_collectives(place.device)),
      operations_(place.timeout) {
  const c10::DeviceGuard guard(place_.device);
  try {
    const std::lock_guard lock(mutex_);
    ncclConfig_t config = configuration(place_.channels);
    settle(start(&config, &communicator_), "connecting");
    settle(ncclCommUserRank(communicator_, &place_.rank), "connecting");
    settle(ncclCommCount(communicator_, &place_.size), "connecting");
  } catch (...) {
    abort();
    if (place_.has_own_stream) Streams::instance().give_back(stream_);
    throw;
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
  note_late_peers(false);
  if (communicator_ != nullptr && !finalize()) abort();
  if (place_.has_own_stream) Streams::instance().give_back(stream_);
}

// Returns false if the caller must abort: after a failure, or if an operation
// does not end because it waits for a lost peer.
bool NcclConnection::finalize() {
  if (std::uncaught_exceptions() > 0) return false;
  const Clock::time_point deadline = Clock::now() + place_.timeout;
  const auto wait_while = [&](const auto& is_open) {
    Polling polling;
    HostWait waiting(place_.services);
    while (is_open() && !place_.family->has_failed() &&
           Clock::now() < deadline) {
      if (polling.pause()) waiting.begin();
    }
  };
  try {
    const c10::DeviceGuard guard(place_.device);
    wait_while([&] {
      operations_.overdue(Clock::now());
      return !operations_.is_idle();
    });
  } catch (const std::exception&) {  // a failed device completes no operation
    return false;
  }
  if (!operations_.is_idle() || place_.family->has_failed()) return false;
  ncclResult_t state = ncclCommFinalize(communicator_);
  wait_while([&] {
    return state == ncclInProgress &&
           ncclCommGetAsyncError(communicator_, &state) == ncclSuccess &&
           state == ncclInProgress;
  });
  return state == ncclSuccess && ncclCommDestroy(communicator_) == ncclSuccess;
}

void NcclConnection::fail(const std::string& operation, ncclResult_t result) {
  const std::string text = text_of(result, communicator_);
  const std::string advice = nccl_advice(text);
  place_.family->fail(
      operation + ": " + text + (advice.empty() ? "" : "; " + advice),
      cause_of(result, text));
  abort();
}

void NcclConnection::abort() {
  place_.family->mark_failure();
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

void NcclConnection::wait_while_in_progress(ncclComm_t communicator,
                                            const char* operation) {
  Polling polling;
  HostWait waiting(place_.services);
  PeerPatience patience(place_.timeout, polling.begin());
  ncclResult_t state = ncclInProgress;
  for (;;) {
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclInProgress) break;
    if (patience.is_over(Clock::now(), place_.services.a_peer_works())) {
      place_.family->fail(cat(std::string(operation), ": no answer within ",
                              patience.waited().count(), " ms"));
    }
    if (place_.family->has_failed()) {
      abort();
      throw_failure();
    }
    if (polling.pause()) waiting.begin();
  }
  if (state == ncclSuccess) return;
  fail(operation, state);
  throw_failure();
}

void NcclConnection::settle(ncclResult_t result, const char* operation) {
  // An error about invalid arguments is thrown on this rank only; the
  // communicator stays usable.
  HEADROOM_CHECK(
      result != ncclInvalidArgument,
      std::string(operation) + ": " + text_of(result, communicator_));
  if (result != ncclSuccess && result != ncclInProgress) {
    fail(operation, result);
    throw_failure();
  }
  wait_while_in_progress(communicator_, operation);
}

c10::Stream NcclConnection::current_stream() const {
  return c10::impl::VirtualGuardImpl(place_.device.type())
      .getStream(place_.device);
}

OperationEnd NcclConnection::issue(const char* operation, const Call& call) {
  throw_if_failed();
  const c10::DeviceGuard guard(place_.device);
  c10::Event ready(place_.device.type());
  ready.record(current_stream());
  ready.block(stream_);
  const auto begin = std::make_shared<c10::Event>(place_.device.type());
  const auto end = std::make_shared<c10::Event>(place_.device.type());
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  begin->record(stream_);
  call_hook(stream_);
  settle(
      call(communicator_, static_cast<cudaStream_t>(stream_.native_handle())),
      operation);
  if (place_.behind_each) place_.behind_each(stream_);
  end->record(stream_);
  operations_.add({operation, [begin] { return begin->query(); },
                   [end] { return end->query(); }});
  return end;
}

void NcclConnection::order_behind(const OperationEnd& end) {
  const c10::DeviceGuard guard(place_.device);
  end->block(current_stream());
  throw_if_failed();
}

void NcclConnection::wait_on_host(const OperationEnd& end,
                                  const char* operation) {
  const c10::DeviceGuard guard(place_.device);
  Polling polling;
  while (!end->query()) {
    if (place_.family->has_failed()) break;
    polling.pause();
  }
  // An aborted operation ends too, so check for a failure.
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  wait_while_in_progress(communicator_, operation);
}

void NcclConnection::synchronize() {
  const c10::DeviceGuard guard(place_.device);
  const auto all = std::make_shared<c10::Event>(place_.device.type());
  all->record(stream_);
  wait_on_host(all, "what was issued");
}

void NcclConnection::note_late_peers(bool are_late) {
  if (are_late == peers_are_late_) return;
  peers_are_late_ = are_late;
  if (are_late) {
    place_.services.begin_peer_wait();
  } else {
    place_.services.end_peer_wait();
  }
}

void NcclConnection::look() {
  if (place_.family->has_failed()) return abort();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) state = asked;
  if (state != ncclSuccess && state != ncclInProgress) {
    return fail("an operation", state);
  }
  if (const auto late =
          operations_.overdue(Clock::now(), place_.services.a_peer_works())) {
    place_.family->fail(
        cat(*late, ": not done after ", place_.timeout.count(), " ms"));
    return abort();
  }
  note_late_peers(operations_.has_begun());
}

void NcclConnection::watch() {
  // Without this, the new thread would use the first device, and querying
  // events would create a context on that device.
  c10::impl::VirtualGuardImpl(place_.device.type()).setDevice(place_.device);
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kWatchEvery, [this] { return is_ending_; })) {
    if (communicator_ == nullptr) continue;
    try {
      look();
    } catch (const std::exception& error) {  // the device failed
      place_.family->fail(error.what(), NcclFamily::Cause::kOwn);
      abort();
    }
    if (communicator_ == nullptr) note_late_peers(false);
  }
}

}  // namespace headroom::cuda
