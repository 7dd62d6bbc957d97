// A rank could not communicate for a local reason, such as a limit of its
// machine. No peer is lost, and a new generation of the same ranks would not
// help.
#pragma once

#include "parallel/base/check.h"

namespace headroom {

class LocalCommunicationError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace headroom
