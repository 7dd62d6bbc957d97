// Meeting: memory that the ranks of one communicator share, as processes or
// threads, and a barrier for them.
//
// Each rank has a window. A round of a collective is: write into the own
// window, meet, read all windows, meet. The loss of a peer is not reported: a
// meeting with a lost peer ends only when it is stopped.
//
// Ownership: the memory is freed with the last rank's mapping; its name is
// removed once all ranks have mapped it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace headroom::nccl_shim {

class Meeting {
 public:
  static constexpr size_t kWindowBytes = 256 << 10;

  // Numbers that a rank publishes to the others before a round.
  struct Notice {
    std::atomic<int64_t> numbers[4];
  };

  Meeting(const std::string& name, int rank, int size);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Returns when all ranks have arrived; false if stopped.
  bool meet(const std::function<bool()>& is_stopped);

  Notice& notice(int rank) const;
  char* window(int rank) const;

 private:
  struct Slot;
  Slot& slot(int rank) const;

  const std::string path_;
  const int rank_, size_;
  size_t bytes_ = 0;
  char* memory_ = nullptr;
  int64_t round_ = 0;
};

}  // namespace headroom::nccl_shim
