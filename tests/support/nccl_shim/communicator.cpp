#include "tests/support/nccl_shim/communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

namespace headroom::nccl_shim {
namespace {

constexpr auto kPoll = std::chrono::microseconds(50);

TestDeviceHooks& known_hooks() {
  static TestDeviceHooks hooks = {
      [] { return 0; }, [](int, int64_t) { return true; }, [](int, int64_t) {}};
  return hooks;
}

struct LastError {
  std::mutex mutex;
  char text[1024] = "";
};

LastError& noted() {
  static auto* const error = new LastError;
  return *error;
}

// Ranks on the same machine have the same host number, as in NCCL.
int64_t host_number() {
  const char* const given = std::getenv("NCCL_HOSTID");
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return static_cast<int64_t>(
      std::hash<std::string>()(given != nullptr ? given : name) >> 1);
}

bool connects_at_once() {
  const char* const given = std::getenv("NCCL_RUNTIME_CONNECT");
  return given != nullptr && std::string(given) == "0";
}

}  // namespace

void set_hooks(const TestDeviceHooks& hooks) { known_hooks() = hooks; }
const TestDeviceHooks& hooks() { return known_hooks(); }

void note_error(const std::string& text) {
  const std::lock_guard lock(noted().mutex);
  std::strncpy(noted().text, text.c_str(), sizeof(noted().text) - 1);
}

const char* last_error() { return noted().text; }

Communicator::Communicator(const Place& place)
    : place_(place),
      meeting_(std::make_unique<Meeting>(place.name, place.rank, place.size)) {}

Communicator::~Communicator() {
  end_call();
  if (bytes_ > 0) hooks().give_back(place_.device, bytes_);
}

void Communicator::end_call() {
  if (call_.joinable()) call_.join();
}

ncclResult_t Communicator::start(const char* call,
                                 const std::function<ncclResult_t()>& run) {
  const auto fault = fault_of_call(call, place_.rank);
  using Kind = ShimFault::Kind;
  const auto is = [fault](Kind kind) { return fault && fault->kind == kind; };
  if (is(Kind::kRefuse)) {
    note_error(std::string("injected: ") + call + " is refused");
    return static_cast<ncclResult_t>(fault->result);
  }
  end_call();
  is_full_ = is(Kind::kFull);
  hangs_ = is(Kind::kHang);
  state_ = ncclInProgress;
  call_ = std::thread([this, run, fault, is, name = std::string(call)] {
    if (is(Kind::kDelay)) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(fault->milliseconds));
    }
    while (is(Kind::kNever) && !is_stopped()) {
      std::this_thread::sleep_for(kPoll);
    }
    if (is(Kind::kFail)) {
      note_error("injected: " + name + " fails");
      state_ = static_cast<ncclResult_t>(fault->result);
      return;
    }
    try {
      state_ = run();
    } catch (const std::exception& error) {
      note_error(error.what());
      state_ = ncclSystemError;
    }
  });
  return ncclInProgress;
}

ncclResult_t Communicator::take_buffers() {
  if (bytes_ > 0 && !is_full_) return ncclSuccess;
  const int64_t bytes = kBufferBytes;
  if (is_full_ || !hooks().take(place_.device, bytes)) {
    note_error("Failed to CUDA calloc async " + std::to_string(bytes) +
               " bytes");
    return ncclUnhandledCudaError;
  }
  bytes_ = bytes;
  return ncclSuccess;
}

// The first meeting of all ranks, which checks that no two use the same device.
ncclResult_t Communicator::meet_first() {
  Meeting::Notice& own = meeting_->notice(place_.rank);
  own.numbers[0] = host_number();
  own.numbers[1] = place_.device;
  if (!meet()) return ncclInternalError;
  for (int other = 0; other < place_.size; ++other) {
    const Meeting::Notice& theirs = meeting_->notice(other);
    if (other == place_.rank || theirs.numbers[0] != own.numbers[0] ||
        theirs.numbers[1] != own.numbers[1]) {
      continue;
    }
    note_error("Duplicate GPU detected : rank " + std::to_string(place_.rank) +
               " and rank " + std::to_string(other) + " both on CUDA device " +
               std::to_string(place_.device));
    return ncclInvalidUsage;
  }
  if (!meet()) return ncclInternalError;
  return connects_at_once() ? take_buffers() : ncclSuccess;
}

ncclResult_t Communicator::connect() {
  return start("CommInitRankScalable", [this] { return meet_first(); });
}

ncclResult_t Communicator::begin(const Collective& collective,
                                 const TestStreamHandle* stream) {
  ++under_way_;
  const ncclResult_t result =
      start(collective.call, [this, collective, stream] {
        const ncclResult_t taken = take_buffers();
        if (taken != ncclSuccess) {
          --under_way_;
          return taken;
        }
        struct Launch {
          std::shared_ptr<Communicator> self;
          Collective collective;
          bool hangs;
        };
        auto* const launch = new Launch{shared_from_this(), collective, hangs_};
        stream->give(
            stream,
            [](void* given) {
              const std::unique_ptr<Launch> own(static_cast<Launch*>(given));
              own->self->do_on_device(own->collective, own->hangs);
            },
            launch);
        return ncclSuccess;
      });
  if (result != ncclInProgress) --under_way_;
  return result;
}

void Communicator::do_on_device(const Collective& collective, bool hangs) {
  while (hangs && !is_stopped()) std::this_thread::sleep_for(kPoll);
  Meeting::Notice& own = meeting_->notice(place_.rank);
  own.numbers[0] =
      static_cast<int64_t>(collective.call[0]) << 8 | collective.call[3];
  own.numbers[1] = collective.count;
  own.numbers[2] = collective.type;
  own.numbers[3] = collective.operation;
  bool is_same = true;
  if (meet()) {
    for (int rank = 0; rank < place_.size; ++rank) {
      for (int i = 0; i < 4; ++i) {
        is_same &= meeting_->notice(rank).numbers[i] == own.numbers[i];
      }
    }
    if (!is_same) {
      note_error(std::string("ranks differ in ") + collective.call);
      state_ = ncclInvalidUsage;
    } else if (meet()) {
      collective.run();
    }
  }
  --under_way_;
}

ncclResult_t Communicator::finalize() {
  return start("CommFinalize", [this] {
    while (under_way_ > 0 && !is_stopped()) std::this_thread::sleep_for(kPoll);
    return ncclSuccess;
  });
}

void Communicator::abort() {
  stopped_ = true;
  end_call();
}

}  // namespace headroom::nccl_shim
