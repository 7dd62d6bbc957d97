// NcclRanks: the connections of a generation's ranks over NCCL, one for each
// set of ranks that exchanges something.
//
// The communicators of all axes of a mesh that have the same ranks share one.
// They may: all operations of a device run on one stream in the order of issue
// anyway, and that order is the same on all ranks of a group.
//
// A connection is made by its ranks alone: some of them listen, one of 256
// (nccl_limits.h), and broadcast over the host's communicator where. A
// connection lives as long as this object, so that either all ranks of a set
// have it or none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/cuda/nccl_connection.h"

namespace headroom::cuda {

class NcclRanks {
 public:
  // `place`: of this rank in the generation. Throws Error (exit 2) where the
  // NCCL library is older than the one the program was built with.
  explicit NcclRanks(const NcclConnection::Place& place);

  // The connection of the ranks of `host`, in its order. Collective over them;
  // what it throws is what NcclConnection does.
  std::shared_ptr<NcclConnection> connection(collectives::Communicator& host);

  const c10::Device& device() const { return place_.device; }
  void throw_if_failed() const {
    if (place_.family->has_failed()) {
      place_.family->throw_failure(place_.rank, place_.size);
    }
  }
  // This rank's end is a failure: its connections are aborted, so that peers
  // need not wait for what will not come.
  void abandon() { place_.family->fail("this rank left its peers"); }

 private:
  std::shared_ptr<NcclConnection> connect(collectives::Communicator& host);

  const NcclConnection::Place place_;
  // The key of each: its ranks, as numbered in the generation.
  std::map<std::vector<int64_t>, std::shared_ptr<NcclConnection>> connections_;
};

}  // namespace headroom::cuda
