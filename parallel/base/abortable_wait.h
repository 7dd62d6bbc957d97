// AbortableWait: lets whoever learns that a peer is lost free those who wait
// for it. A connection mostly says so itself, at once; but where the peer died
// in the middle of a message, Gloo goes on waiting for the rest of it until the
// operation's time limit.
//
//   { const AbortableWait here([&] { work.abort(); }); work.wait(); }
//
// Threads: any; the list of waits is the process's. `abort` is called from the
// thread that aborts, and never after the destructor has returned.
#pragma once

#include <functional>

namespace headroom {

class AbortableWait {
 public:
  explicit AbortableWait(std::function<void()> abort);
  ~AbortableWait();
  AbortableWait(const AbortableWait&) = delete;
  AbortableWait& operator=(const AbortableWait&) = delete;

  // Aborts what waits now; what begins to wait later is not affected.
  static void abort_all();

 private:
  const std::function<void()> abort_;
};

}  // namespace headroom
