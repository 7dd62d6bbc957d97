// NcclRanks: a generation's NCCL connections, one for each set of ranks.
//
// Communicators of different axes of the mesh that have the same ranks share
// one connection. This is safe: all collectives of a device run on one stream
// in the order of issue, and that order is the same on all ranks of a group.
// The messages of two ranks are not in such an order, so each direction has a
// connection and a stream.
//
// A connection is created by its own ranks: one of every 256 (nccl_limits.h)
// listens, and broadcasts its address over the host's communicator. A
// connection exists as long as this object, so either all ranks of a set have
// it, or no rank has.
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
  // The ranks of a connection for messages.
  static constexpr int kSender = 0, kReceiver = 1;

  // `place`: this rank's place in the generation. Throws Error (exit 2) if the
  // loaded NCCL library is older than the one at build time.
  explicit NcclRanks(const NcclConnection::Place& place);

  // Returns the connection of the ranks of `host`, in their order; creates it,
  // with at most `channels`, if necessary. Collective over these ranks; throws
  // as NcclConnection does.
  std::shared_ptr<NcclConnection> connection(collectives::Communicator& host,
                                             int channels);

  // Connects two ranks of `host` for messages in one direction, on a stream of
  // its own. Collective over these two.
  std::shared_ptr<NcclConnection> messages(collectives::Communicator& host,
                                           int from, int to) const;

  const c10::Device& device() const { return place_.device; }
  void throw_if_failed() const {
    if (place_.family->has_failed()) {
      place_.family->throw_failure(place_.rank, place_.size);
    }
  }
  std::shared_ptr<const int32_t> failure_word() const {
    return place_.family->failure_word();
  }
  // Call it when this rank leaves because of a failure: aborts its connections,
  // so that peers do not wait for it.
  void abandon() { place_.family->fail("this rank left its peers"); }

 private:
  std::shared_ptr<NcclConnection> connect(collectives::Communicator& host,
                                          int channels);

  const NcclConnection::Place place_;
  // Keyed by the connection's ranks, numbered as in the generation.
  std::map<std::vector<int64_t>, std::shared_ptr<NcclConnection>> connections_;
};

}  // namespace headroom::cuda
