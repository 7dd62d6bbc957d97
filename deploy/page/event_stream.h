// EventStream: the page's server-sent events. All readers share one text
// (RunShelf::news), which is made at most once a second and only sent if it
// changed. A comment every 15 seconds keeps the connection alive. A reader that
// does not read holds one shared text and is disconnected after the server's
// idle time.
//
// Without readers the thread sleeps.
//
// Threads: the stream has a thread of its own; the server's threads call back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "deploy/page/run_shelf.h"

struct MHD_Connection;
struct MHD_Response;

namespace headroom::page {

class EventStream {
 public:
  // Keeps a reference to the shelf.
  EventStream(RunShelf& shelf, std::chrono::milliseconds interval,
              std::chrono::milliseconds sign_of_life);
  // REQUIRES: stop() was called and the server has ended.
  ~EventStream();
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // The response for one more reader; nullptr if memory is short.
  MHD_Response* subscribe(MHD_Connection* connection);
  // Ends all streams; call it before the server is stopped. Readers that read
  // within 0.3 s still receive the last changes.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Reader;

  static ssize_t read(void* reader, uint64_t position, char* buffer,
                      size_t max);
  static void release(void* reader);
  ssize_t fill(Reader& reader, char* buffer, size_t max);
  void follow();
  // Makes the newest text; releases `lock` meanwhile.
  void look(std::unique_lock<std::mutex>& lock);
  static void resume(Reader& reader);

  RunShelf& shelf_;
  const std::chrono::milliseconds interval_, sign_of_life_;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  Text newest_;
  std::set<Reader*> readers_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace headroom::page
