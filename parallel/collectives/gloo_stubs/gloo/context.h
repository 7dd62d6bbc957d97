// Declarations that c10d's ProcessGroupGloo.hpp needs of Gloo. The wheel has
// Gloo's code but not its headers; only what is used here is declared, with the
// names and layouts of the symbols in libtorch_cpu. Seen by
// gloo_communicator.cpp alone.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
  void closeConnections();
};

namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace transport
}  // namespace gloo
