// Communicator: a fixed, ordered set of ranks that exchange tensors. backend.h
// makes communicators. In a group of one rank, collectives return their input.
//
// The tensor of an asynchronous operation must live and stay unmodified until
// wait(). One thread per rank starts operations and waits for them, in the same
// order on every rank. Errors: CommunicationError if a peer is lost or an
// operation times out; the communicator is then unusable and is dropped with
// its generation. Invariants:
//   1. every rank sees bit-identical results of all_reduce;
//   2. the same ranks, sizes and values give the same bits again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace headroom::collectives {

enum class ReduceOp { kSum, kMax };

// An asynchronous operation in progress.
class Work {
 public:
  virtual ~Work() = default;
  // Returns when the operation is done; throws CommunicationError.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All operations take dense CPU tensors (any strides that cover their storage
  // without holes) with the same element count and type on all ranks: float,
  // double, int64 or uint8. Reduces in place; several sums may be in progress
  // at once.

  virtual std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                                 ReduceOp op) = 0;
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) {
    all_reduce_async(tensor, op)->wait();
  }

  // Returns `count` zeros in memory that all_reduce sums, and all_gather_pieces
  // gathers, with the least copying, as a whole or in parts (the same parts on
  // all ranks). The tensor can be used like any other, and may outlive the
  // communicator. Collective, with the same arguments on all ranks.
  virtual at::Tensor zeros(int64_t count, at::ScalarType type);
  // A generation may replace its communicator by a new one of the same ranks in
  // the same processes. The new one adopts the buffers of the old one, so that
  // tensors from zeros() are still summed in place. Either all ranks call
  // adopt(), or no rank does. buffers() is null if there are no buffers.
  class Buffers {
   public:
    virtual ~Buffers() = default;
  };
  virtual std::shared_ptr<Buffers> buffers() const { return nullptr; }
  virtual void adopt(std::shared_ptr<Buffers> /*buffers*/) {}

  // `output` has size() times the elements of `input`, in rank order. `input`
  // may be this rank's own part of `output`.
  virtual void all_gather(const at::Tensor& output,
                          const at::Tensor& input) = 0;
  // Gathers consecutive pieces of `flat` as one operation: piece i has size()
  // parts of part_sizes[i] elements in rank order, and this rank's parts are in
  // their places. The least copying if `flat` is from zeros().
  virtual void all_gather_pieces(const at::Tensor& flat,
                                 const std::vector<int64_t>& part_sizes);
  // Starts a gather, which runs in wait(), or in the background if
  // gathers_in_background().
  virtual std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                                 const at::Tensor& input);
  virtual bool gathers_in_background() const { return false; }

  // `input` has size() times the elements of `output`; rank i gets the sum of
  // part i. `input` is overwritten with undefined values.
  virtual void reduce_scatter(const at::Tensor& output,
                              const at::Tensor& input) = 0;

  virtual void broadcast(const at::Tensor& tensor, int root) = 0;

  // Sends from one rank to another match the receives of that other rank in
  // order of issue; any number may be in progress. Tensors have at least one
  // element; bfloat16 and float16 are allowed too.
  virtual std::unique_ptr<Work> send_async(const at::Tensor& tensor,
                                           int to) = 0;
  virtual std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                           int from) = 0;
  void send(const at::Tensor& tensor, int to) {
    send_async(tensor, to)->wait();
  }
  void recv(const at::Tensor& tensor, int from) {
    recv_async(tensor, from)->wait();
  }

  virtual void barrier() = 0;

  // For device tensors, wait() only orders the device's work; failures are
  // detected later. check() throws CommunicationError if an operation has
  // failed so far: all results after the failure are invalid. synchronize()
  // returns when all operations are complete, and throws if one failed.
  virtual void check() {}
  virtual void synchronize() {}
  // A word of the host that devices can read, as long as the pointer is held: 0
  // until an operation on the device has failed. It is set before the kernels
  // of a failed operation end, so if work behind operations reads 0, they are
  // complete. Null if devices do not exchange their tensors themselves; all
  // ranks of a generation then have none.
  virtual std::shared_ptr<const int32_t> failure_word() const {
    return nullptr;
  }
  // Makes the connections that the first operation on a device's tensor would
  // make (device_ranks.h), so that their memory is counted and a failure to
  // connect does not interrupt a training step. Collective.
  virtual void connect() {}
  // Like connect(), for sums of kilobytes only, with less of a device's memory.
  virtual void connect_for_small_sums() { connect(); }
  // Like connect(), for messages between every two ranks. A communicator of
  // device tensors needs it; without it their messages go through the host.
  virtual void connect_messages() {}
  // Marks this rank as failed: the destructor then waits for no peer.
  virtual void abandon() {}

  // Returns a communicator of the ranks that pass the same `color` as this
  // rank, ordered by `key` (equal keys by rank). Collective over all ranks.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
};

std::unique_ptr<Communicator> make_single_communicator();

}  // namespace headroom::collectives
