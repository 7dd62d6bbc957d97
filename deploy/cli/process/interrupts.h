// Interrupts: how often somebody asked this process to stop.
//
// SIGINT, SIGTERM and SIGHUP end the process at once, but for the times when
// something has to be brought to an end: while a Watch lives they only count,
// and who made it asks for the count. Signals within 50 ms are one request:
// timeout(1) and some launchers send theirs to the process and to its group. A
// signal that was ignored at start-up (nohup) stays ignored.
//
// Threads: install() once, from main; the rest from any thread.
#pragma once

#include <chrono>

namespace headroom::interrupts {

void install();
int count();

// A request of another kind than a signal's, as of a button. However often it
// is made, it counts once, and not at all where there was one before.
void request();

// Waits for a request, at most for `patience`. Returns whether there is one,
// which is so at once where there was one before.
bool wait(std::chrono::milliseconds patience);

// Makes the loss of the parent, a launcher that was killed, a request too from
// here on, and after 15 s a second one.
void watch_parent();

class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace headroom::interrupts
