// BeatChannel: one end of the socket over which a worker tells its agent that
// it lives, and the agent hands back what the coordinator answered. The worker
// inherits its end; nobody else can reach it.
//
// Records have a fixed size and are whole: both ends belong to one build.
// Nobody waits until the other end reads.
//
// Threads: one sends and receives; any may hang up. Errors: Error (exit 5)
// where the system has no socket for a pair.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "proto/run_progress.h"

namespace headroom::wire {

// A worker lives, and is so far.
struct Beat {
  // The moment when it was sent. The clock is the machine's, so that the agent
  // knows its age however late it is read.
  std::chrono::steady_clock::time_point sent;
  uint64_t generation = 0;       // 0 before the worker's first
  bool waits_for_peers = false;  // now
  bool has_progress = false;
  RunProgress progress;
};

// What the coordinator answered to a beat; nothing where it did not in time.
struct BeatAnswer {
  uint64_t generation = 0;  // the beat's
  bool is_there = false;    // the coordinator answered, whatever it said
  bool stop_requested = false;
  bool leave_requested = false;
  bool peer_lost = false;
  bool a_peer_works = false;
  char refusal[400] = "";  // why the beat is stale; "" where it is not
};

// The environment variable with the number of the worker's end.
inline constexpr const char* kBeatChannelVariable = "HEADROOM_BEAT_FD";

class BeatChannel {
 public:
  BeatChannel() = default;  // closed
  ~BeatChannel() { close(); }
  BeatChannel(BeatChannel&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_open_(other.is_open_) {}
  BeatChannel& operator=(BeatChannel&& other) noexcept;

  // Two ends that a child gets only where they are passed on.
  static std::pair<BeatChannel, BeatChannel> make_pair();
  // The end that an agent has left this process; closed where none has.
  // Processes that this one starts do not get it.
  static BeatChannel from_environment();

  bool is_open() const { return fd_ >= 0 && is_open_; }
  int fd() const { return fd_; }

  // False where the other end is gone, or has not read for very long.
  template <typename Record>
  bool send(const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    return send(&record, sizeof record);
  }
  // Nothing where none came within `wait`, or the other end is gone.
  template <typename Record>
  std::optional<Record> receive(std::chrono::milliseconds wait) {
    static_assert(std::is_trivially_copyable_v<Record>);
    Record record;
    if (!receive(&record, sizeof record, wait)) return std::nullopt;
    return record;
  }

  // Ends the conversation, and the other thread's receive().
  void hang_up();

 private:
  explicit BeatChannel(int fd) : fd_(fd) {}
  bool send(const void* record, size_t size);
  bool receive(void* record, size_t size, std::chrono::milliseconds wait);
  void close();

  int fd_ = -1;
  bool is_open_ = true;  // false once the other end is found gone
};

}  // namespace headroom::wire
