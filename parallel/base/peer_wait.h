// PeerWait: says for whom a process stands still: for its peers, or for itself.
//
// Whoever waits for an operation over ranks, or for the coordinator, puts one
// around it; whoever watches
// over the process asks for how long it has shown no sign of life, which is
// never while it waits for peers: it is then they who are late.
//
//   { const PeerWait waiting; work.wait(); }
//
// Threads: any; the state is the process's.
#pragma once

#include <chrono>

namespace headroom {

class PeerWait {
 public:
  PeerWait();
  ~PeerWait();
  PeerWait(const PeerWait&) = delete;
  PeerWait& operator=(const PeerWait&) = delete;

  // Something went forward.
  static void sign_of_life();
  // Since the last sign of life or end of waiting; 0 while anybody waits.
  static std::chrono::milliseconds quiet();
};

}  // namespace headroom
