// Interrupts: counts the requests to stop this process.
//
// By default SIGINT, SIGTERM and SIGHUP end the process at once. While a Watch
// exists they are only counted, and the owner of the Watch reads the count: use
// it where something must be finished first. Signals within 50 ms count as one
// request, because timeout(1) and some launchers signal both the process and
// its group. A signal that was ignored at start-up (nohup) stays ignored.
//
// Threads: call install() once, from the main thread; the other functions from
// any thread.
#pragma once

#include <chrono>

namespace headroom::interrupts {

// `last_resort`: a second request asks the process to stop at once. If it still
// runs after this time, it ends with exit code 130 even if its threads wait.
// Longer than any wait of an orderly stop.
void install(std::chrono::seconds last_resort = std::chrono::seconds(10));
int count();

// Requests a stop without a signal, for example from a button. Repeated calls
// count once; a call after another request does not count.
void request();

// Waits at most `patience` for a request. Returns whether there is one; returns
// true at once if there was one before.
bool wait(std::chrono::milliseconds patience);

// From now on the death of the parent (a killed launcher) counts as a request,
// and 15 s later as a second request.
void watch_parent();

class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace headroom::interrupts
