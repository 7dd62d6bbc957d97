// BeatChannel: one end of a socket pair between a worker and its agent. The
// worker sends beats that show it is alive; the agent sends back the
// coordinator's replies. The worker inherits its end; no other process can
// reach it.
//
// Records have a fixed size and arrive whole; both ends must be of the same
// build. Sending never blocks.
//
// Threads: one thread sends and receives; any thread may hang up. Throws Error
// (exit 5) if the system has no socket left.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "proto/run_progress.h"

namespace headroom::wire {

// A worker's report that it is alive, with its progress.
struct Beat {
  // Time of sending, on the machine's steady clock, so that the agent can
  // compute the beat's age even if it reads the beat late.
  std::chrono::steady_clock::time_point sent;
  uint64_t generation = 0;       // 0 before the worker's first generation
  bool waits_for_peers = false;  // state when the beat was sent
  bool has_progress = false;
  RunProgress progress;
};

// The coordinator's reply to a beat. If the coordinator did not answer in time,
// only `generation` is set.
struct BeatAnswer {
  uint64_t generation = 0;  // the beat's generation
  bool is_there = false;    // the coordinator answered, even with a refusal
  bool stop_requested = false;
  bool leave_requested = false;
  bool peer_lost = false;
  bool a_peer_works = false;
  char refusal[400] = "";  // why the beat was refused as stale; "" if accepted
};

// Environment variable with the descriptor number of the worker's end.
inline constexpr const char* kBeatChannelVariable = "HEADROOM_BEAT_FD";

class BeatChannel {
 public:
  BeatChannel() = default;  // closed
  ~BeatChannel() { close(); }
  BeatChannel(BeatChannel&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_open_(other.is_open_) {}
  BeatChannel& operator=(BeatChannel&& other) noexcept;

  // Both ends are close-on-exec: a child inherits only the end passed to it.
  static std::pair<BeatChannel, BeatChannel> make_pair();
  // The end that an agent passed to this process; a closed channel if there is
  // none. It is not inherited by children of this process.
  static BeatChannel from_environment();

  bool is_open() const { return fd_ >= 0 && is_open_; }
  int fd() const { return fd_; }

  // Returns false if the other end is closed, or if the buffer is full because
  // the other end has not read for a long time.
  template <typename Record>
  bool send(const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    return send(&record, sizeof record);
  }
  // Returns nullopt if no record arrived within `wait`, or the other end is
  // closed.
  template <typename Record>
  std::optional<Record> receive(std::chrono::milliseconds wait) {
    static_assert(std::is_trivially_copyable_v<Record>);
    Record record;
    if (!receive(&record, sizeof record, wait)) return std::nullopt;
    return record;
  }

  // Shuts the connection down. A receive() in another thread returns.
  void hang_up();

 private:
  explicit BeatChannel(int fd) : fd_(fd) {}
  bool send(const void* record, size_t size);
  bool receive(void* record, size_t size, std::chrono::milliseconds wait);
  void close();

  int fd_ = -1;
  bool is_open_ = true;  // false once the other end was found closed
};

}  // namespace headroom::wire
