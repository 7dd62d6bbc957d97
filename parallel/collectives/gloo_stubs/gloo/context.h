// Declarations that c10d's ProcessGroupGloo.hpp needs of Gloo, as of the Gloo
// inside LibTorch 2.11. The wheel has Gloo's code but not its headers, and
// Debian's libgloo-dev is years older. Only what is used here is declared, with
// the names of the symbols in libtorch_cpu; no object of these classes is made
// here, so their layouts do not matter. gloo_communicator.cpp alone sees this
// file, and checks what it relies on.
#pragma once

#include <chrono>

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
