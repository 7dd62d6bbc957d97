// Mailbox: the messages of one stage during one step, sent and received.
//
// Sends never block. A send is waited for, and its map released, once a message
// has come back that the peer sent after it had posted the receive: a stage
// posts the receives of its next instruction before it computes one, so a
// message of its instruction i vouches for those of instructions up to i + 1.
// The rest is waited for at the end of the step. Where no backward answers
// (forward only) sends are waited for one instruction later: the stage that is
// furthest behind never waits for one. A message without elements is not sent,
// and received as an empty tensor.
//
// It borrows all it is given, for one step.
// Errors: CommunicationError; c10::OutOfMemoryError where a receive is posted.
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

// One message of a stage's step. It is known by the instruction that sends or
// receives it, by the map (its layer) and by the other stage. Maps go forward,
// their gradients back, the same layers in the same order, so that both ends of
// a pair agree.
struct StageMessage {
  int layer = 0;
  int peer = 0;  // the other stage
  // Index of the instruction that handles the message at the peer.
  int64_t peer_instruction = 0;
  bool operator==(const StageMessage&) const = default;
};

struct InstructionMessages {
  Instruction instruction;
  std::vector<StageMessage> receives;  // awaited before the computation
  std::vector<StageMessage> sends;     // issued after it
};

// The messages in order of issue: one entry per instruction of schedule(kind,
// num_stages, num_micro_batches, stage).
std::vector<InstructionMessages> step_messages(PipelineSchedule kind,
                                               int num_stages,
                                               int64_t num_micro_batches,
                                               int stage,
                                               const StageRoutes& routes);

// The memory format in which maps of these sizes travel.
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

  // Begins to receive the messages of instruction `index`, if it has not yet
  // and if there is one.
  void post_receives(size_t index);
  // Message `position` of instruction `index`, once it is here.
  // REQUIRES: its receives posted; messages are taken in order.
  at::Tensor take(size_t index, size_t position);

  // Sends message `position` of instruction `index`, in order. The tensor must
  // not change any more.
  void send(size_t index, size_t position, const at::Tensor& map);

  // Waits for the sends of all instructions before `index`.
  void wait_for_sends(size_t index);

 private:
  struct Receiving {
    at::Tensor map;
    // Null where there is nothing to receive.
    std::unique_ptr<collectives::Work> work;
  };
  struct Sending {
    size_t index = 0;  // the instruction's place
    StageMessage message;
    at::Tensor map;
    std::unique_ptr<collectives::Work> work;
  };

  void release_sends(const StageMessage& arrived);

  collectives::Communicator& stages_;
  const std::vector<InstructionMessages> list_;
  const MapSizes map_sizes_;
  const at::TensorOptions map_options_;
  std::vector<size_t> num_posted_;  // receives per instruction
  std::vector<size_t> num_taken_;   // receives taken of those posted
  std::vector<size_t> num_sent_;
  std::list<Receiving> receiving_;  // posted and not taken, in order
  std::list<Sending> sending_;
};

}  // namespace headroom::pipeline
