// EventStream: the page's server-sent events. All readers of a run get one
// text, made at most once a second, when it changed; a comment every 15 seconds
// is a sign of life. A reader that does not read holds one shared text, and
// loses its connection after the server's idle time.
//
// Without readers the thread sleeps.
//
// Threads: its own, and the server's, which calls back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
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
  // Borrows the shelf.
  EventStream(RunShelf& shelf, std::chrono::milliseconds interval,
              std::chrono::milliseconds sign_of_life);
  // REQUIRES: stop() was called and the server has ended.
  ~EventStream();
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // The response for one reader; null where there is no such run.
  MHD_Response* subscribe(const std::string& id, MHD_Connection* connection);
  // Ends all streams, before the server is stopped. Readers get the last
  // changes if they take them soon.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Topic {
    Text text;
    uint64_t version = 0;
  };
  struct Reader;

  static ssize_t read(void* reader, uint64_t position, char* buffer,
                      size_t max);
  static void release(void* reader);
  ssize_t fill(Reader& reader, char* buffer, size_t max);
  void follow();
  void publish(const std::string& id, const Text& changes);
  void publish_all(std::unique_lock<std::mutex>& lock);
  void resume(Reader& reader);

  RunShelf& shelf_;
  const std::chrono::milliseconds interval_, sign_of_life_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Topic> topics_;
  uint64_t newest_version_ = 0;
  std::set<Reader*> readers_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace headroom::page
