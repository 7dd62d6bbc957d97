// Communicator: a fixed, ordered set of ranks that exchange tensors; backend.h
// makes them. A group of one returns its input.
//
// An asynchronous operation needs its tensor alive and untouched until wait().
// One thread per rank issues operations and waits for them, in the same order
// on every rank. Errors: CommunicationError when a peer is gone or an operation
// times out; the communicator is unusable from then on and is dropped with its
// generation. Invariants:
//   1. every rank sees bit-identical results of all_reduce;
//   2. the same ranks, sizes and values give the same bits again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

namespace headroom::collectives {

enum class ReduceOp { kSum, kMax };

// A collective under way.
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
  // without holes), of one element count and type on all ranks: float, double,
  // int64 or uint8.

  // Reduces in place. Several may be under way at once.
  virtual std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                                 ReduceOp op) = 0;
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) {
    all_reduce_async(tensor, op)->wait();
  }

  // [count] zeros, in memory of which this communicator sums the whole or parts
  // with the least copying, the same parts on all ranks. It may be used for
  // anything else, and outlive the communicator. Collective, with the same
  // arguments on all ranks.
  virtual at::Tensor zeros(int64_t count, at::ScalarType type);

  // `output` has size() times the elements of `input`, in rank order.
  virtual void all_gather(const at::Tensor& output,
                          const at::Tensor& input) = 0;
  // A gather that is done by the time of wait(): in the background where
  // gathers_in_background(), else in wait() itself.
  virtual std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                                 const at::Tensor& input);
  virtual bool gathers_in_background() const { return false; }

  // `input` has size() times the elements of `output`; rank i gets the sum of
  // part i. `input` holds anything after that.
  virtual void reduce_scatter(const at::Tensor& output,
                              const at::Tensor& input) = 0;

  virtual void broadcast(const at::Tensor& tensor, int root) = 0;

  // Messages of one direction between two ranks match in order of issue; any
  // number may be under way. Tensors have at least one element; bfloat16 and
  // float16 are taken too.
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

  // An operation's wait() orders the work of a device, where there is one, and
  // the host learns later that it failed. check() throws CommunicationError
  // where one has failed so far: what was computed after it is worthless.
  // synchronize() returns when all that was issued is done, and throws where it
  // failed.
  virtual void check() {}
  virtual void synchronize() {}
  // Connects now what the first operation on a device's tensor would connect
  // (device_ranks.h): where the device's memory is counted, and a refusal costs
  // no step. Collective.
  virtual void connect() {}
  // This rank's end is a failure: its destructor then waits for no peer.
  virtual void abandon() {}

  // The communicator of the ranks with this rank's `color`, ordered by `key`
  // (equal keys by rank). Collective over all ranks.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
};

// The group of one: every operation is done at once.
std::unique_ptr<Communicator> make_single_communicator();

}  // namespace headroom::collectives
