#include "tests/support/nccl_shim/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

namespace headroom::nccl_shim {
namespace {

constexpr size_t kSlotBytes = 128;

}  // namespace

struct Meeting::Slot {
  std::atomic<int64_t> round;
  Notice notice;
};

// The file is all zeros at first: no rank has arrived yet.
Meeting::Meeting(const std::string& name, int rank, int size)
    : path_("/dev/shm/" + name),
      rank_(rank),
      size_(size),
      bytes_(static_cast<size_t>(size) * (kSlotBytes + kWindowBytes)) {
  static_assert(sizeof(Slot) <= kSlotBytes);
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
  memory_ = static_cast<char*>(memory);
}

Meeting::~Meeting() {
  unlink(path_.c_str());
  munmap(memory_, bytes_);
}

bool Meeting::meet(const std::function<bool()>& is_stopped) {
  const int64_t round = ++round_;
  slot(rank_).round.store(round, std::memory_order_release);
  for (int other = 0; other < size_; ++other) {
    for (int tries = 0;
         slot(other).round.load(std::memory_order_acquire) < round; ++tries) {
      if (is_stopped()) return false;
      if (tries < 100) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(30));
      }
    }
  }
  if (round == 1) unlink(path_.c_str());
  return true;
}

Meeting::Notice& Meeting::notice(int rank) const { return slot(rank).notice; }

char* Meeting::window(int rank) const {
  return memory_ + static_cast<size_t>(size_) * kSlotBytes +
         static_cast<size_t>(rank) * kWindowBytes;
}

Meeting::Slot& Meeting::slot(int rank) const {
  return *reinterpret_cast<Slot*>(memory_ +
                                  static_cast<size_t>(rank) * kSlotBytes);
}

}  // namespace headroom::nccl_shim
