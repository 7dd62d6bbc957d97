// GlooCommunicator: ranks are processes that exchange tensors over TCP, through
// the Gloo inside LibTorch.
//
// A failed group cannot be repaired, and Gloo does not tell the other ranks. So
// at the first failure all connections of this rank are closed, which makes its
// peers fail at once too.
//
// The first one sets SIGPIPE to be ignored, if it still has its default action:
// otherwise a dying peer could end this process too.
//
// Gloo's sockets do not authenticate peers: bind to loopback, or to a private
// network (README.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

struct GlooOptions {
  // The name or address of this machine that the peers connect to.
  std::string hostname = "127.0.0.1";
  // Of each single operation, connecting included.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // Threads that run collectives; 1 runs them in the order of their issue.
  int threads = 1;
};

// Collective over all ranks. Keys are written below `prefix`, which no earlier
// group of the same store may have used. The store is kept for split().
// Throws CommunicationError; Error when `hostname` cannot be bound.
// REQUIRES: 0 <= rank < size.
std::unique_ptr<Communicator> make_gloo_communicator(
    std::shared_ptr<KeyValueStore> store, const std::string& prefix, int rank,
    int size, const GlooOptions& options = {});

}  // namespace headroom::collectives
