// Faults of the shim, from HEADROOM_NCCL_FAULTS:
//
//   call=AllReduce,rank=1,nth=3,kind=hang;call=AllGather,kind=refuse
//
//   kind=delay   the call continues after ms= milliseconds
//   kind=never   it stays in progress until the communicator is aborted
//   kind=fail    it is in progress and then failed, with result=
//   kind=refuse  it returns result= at once
//   kind=full    the device has no memory for the communicator's buffers
//   kind=hang    the collective begins on the device and does not end
//
// rank= is a rank of the communicator; without it, every rank has the fault.
// nth= selects one of a process's calls of that name, counted from 1; nth=0
// selects all of them. With file=PATH the fault acts only while that file
// exists.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>

namespace headroom::nccl_shim {

struct ShimFault {
  enum class Kind { kDelay, kNever, kFail, kRefuse, kFull, kHang };
  Kind kind = Kind::kDelay;
  std::string call;
  int rank = -1;
  int nth = 0;
  int milliseconds = 0;
  int result = 3;  // the value of ncclInternalError
  std::string file;
};

// Counts the call, and returns the fault that is set for it. Throws
// std::invalid_argument if the faults cannot be parsed.
std::optional<ShimFault> fault_of_call(const std::string& call, int rank);

}  // namespace headroom::nccl_shim
