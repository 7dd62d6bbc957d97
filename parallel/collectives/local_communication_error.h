// A rank that could not communicate for a reason of its own, such as a limit of
// its machine. No peer is lost, and forming a generation again with the same
// ranks does not help.
#pragma once

#include "parallel/base/check.h"

namespace headroom {

class LocalCommunicationError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace headroom
