// Mailbox: the messages that one stage sends and receives during one step.
//
// Sends never block. The mailbox waits for a send, and releases its map, once a
// message from the same peer shows that the peer has posted the receive. A
// stage posts the receives of its next instruction before it computes the
// current one, so a message of its instruction i shows that the receives of
// instructions up to i + 1 are posted. At the end of the step the mailbox waits
// for the remaining sends. Without backward (forward only) no message comes
// back; then the mailbox waits for the sends of an instruction one instruction
// later, so that the slowest stage never waits for a send. A message without
// elements is not sent; the receiver gets an empty tensor.
//
// The mailbox borrows its arguments for one step. Errors: CommunicationError;
// c10::OutOfMemoryError when a receive is posted.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/skip_routes.h"

namespace headroom::pipeline {

// One message of a stage's step, identified by the instruction that sends or
// receives it, by the map (its layer) and by the other stage. Maps are sent
// forward and their gradients back, for the same layers in the same order, so
// both stages of a pair agree.
struct StageMessage {
  int layer = 0;
  int peer = 0;  // the other stage
  // Index of the instruction that sends or receives the message at the peer.
  int64_t peer_instruction = 0;
  bool operator==(const StageMessage&) const = default;
};

struct InstructionMessages {
  Instruction instruction;
  std::vector<StageMessage> receives;  // received before the computation
  std::vector<StageMessage> sends;     // sent after the computation
};

// The messages in order of issue: one entry per instruction of schedule(kind,
// num_stages, num_micro_batches, stage).
std::vector<InstructionMessages> step_messages(PipelineSchedule kind,
                                               int num_stages,
                                               int64_t num_micro_batches,
                                               int stage,
                                               const StageRoutes& routes);

// The memory format in which maps of these sizes are sent.
at::MemoryFormat map_format(at::IntArrayRef sizes);

class Mailbox {
 public:
  using MapSizes =
      std::function<std::vector<int64_t>(int64_t micro_batch, int layer)>;

  Mailbox(collectives::Communicator& stages,
          std::vector<InstructionMessages> list, MapSizes map_sizes,
          const at::TensorOptions& map_options);

  const std::vector<InstructionMessages>& list() const { return list_; }
  const at::TensorOptions& map_options() const { return map_options_; }

  // Posts the receives of instruction `index`. Does nothing if they are posted
  // already, or if index >= list().size().
  void post_receives(size_t index);
  // Waits for message `position` of instruction `index` and returns its map.
  // REQUIRES: the instruction's receives are posted; messages are taken in
  // order.
  at::Tensor take(size_t index, size_t position);

  // Sends message `position` of instruction `index`. Messages are sent in
  // order. The tensor must not be changed afterwards.
  void send(size_t index, size_t position, const at::Tensor& map);

  // Waits for the sends of all instructions before `index`.
  void wait_for_sends(size_t index);

 private:
  struct Receiving {
    at::Tensor map;
    // nullptr for a message without elements.
    std::unique_ptr<collectives::Work> work;
  };
  struct Sending {
    size_t index = 0;  // the instruction's index
    StageMessage message;
    at::Tensor map;
    std::unique_ptr<collectives::Work> work;
  };

  void release_sends(const StageMessage& arrived);

  collectives::Communicator& stages_;
  const std::vector<InstructionMessages> list_;
  const MapSizes map_sizes_;
  const at::TensorOptions map_options_;
  std::vector<size_t> num_posted_;  // receives posted, for each instruction
  std::vector<size_t> num_taken_;   // receives taken, for each instruction
  std::vector<size_t> num_sent_;
  std::list<Receiving> receiving_;  // posted and not yet taken, in order
  std::list<Sending> sending_;
};

}  // namespace headroom::pipeline
