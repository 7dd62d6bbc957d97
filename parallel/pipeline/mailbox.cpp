#include "parallel/pipeline/mailbox.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::pipeline {

std::vector<InstructionMessages> step_messages(PipelineSchedule kind,
                                               int num_stages,
                                               int64_t num_micro_batches,
                                               int stage,
                                               const StageRoutes& routes) {
  std::vector<std::vector<Instruction>> lists;
  for (int other = 0; other < num_stages; ++other)
    lists.push_back(schedule(kind, num_stages, num_micro_batches, other));
  const auto message = [&lists](int layer, int peer,
                                const Instruction& wanted) {
    const auto& list = lists[static_cast<size_t>(peer)];
    return StageMessage{
        layer, peer,
        std::find(list.begin(), list.end(), wanted) - list.begin()};
  };

  std::vector<InstructionMessages> result;
  for (const Instruction& instruction : lists[static_cast<size_t>(stage)]) {
    InstructionMessages messages{instruction, {}, {}};
    const bool forward = instruction.kind == Instruction::Kind::kForward;
    auto& from_earlier = forward ? messages.receives : messages.sends;
    auto& to_later = forward ? messages.sends : messages.receives;
    for (const ReceivedMap& map : routes.received)
      from_earlier.push_back(message(map.layer, map.from, instruction));
    for (const SentMap& map : routes.sent)
      for (const int to : map.to)
        to_later.push_back(message(map.layer, to, instruction));
    result.push_back(std::move(messages));
  }
  return result;
}

at::MemoryFormat map_format(at::IntArrayRef sizes) {
  return sizes.size() == 4 ? at::MemoryFormat::ChannelsLast
                           : at::MemoryFormat::Contiguous;
}

Mailbox::Mailbox(collectives::Communicator& stages,
                 std::vector<InstructionMessages> list, MapSizes map_sizes,
                 const at::TensorOptions& map_options)
    : stages_(stages),
      list_(std::move(list)),
      map_sizes_(std::move(map_sizes)),
      map_options_(map_options),
      num_posted_(list_.size(), 0),
      num_taken_(list_.size(), 0),
      num_sent_(list_.size(), 0) {}

void Mailbox::post_receives(size_t index) {
  if (index >= list_.size()) return;
  const InstructionMessages& messages = list_[index];
  for (; num_posted_[index] < messages.receives.size(); ++num_posted_[index]) {
    const StageMessage& message = messages.receives[num_posted_[index]];
    Receiving receiving;
    const std::vector<int64_t> sizes =
        map_sizes_(messages.instruction.micro_batch, message.layer);
    receiving.map =
        at::empty(sizes, map_options_.memory_format(map_format(sizes)));
    if (receiving.map.numel() > 0)
      receiving.work = stages_.recv_async(receiving.map, message.peer);
    receiving_.push_back(std::move(receiving));
  }
}

at::Tensor Mailbox::take(size_t index, size_t position) {
  HEADROOM_CHECK(position == num_taken_[index] && !receiving_.empty(),
                 cat("message ", position, " is not the next"));
  Receiving first = std::move(receiving_.front());
  receiving_.pop_front();
  ++num_taken_[index];
  if (first.work != nullptr) {
    first.work->wait();
    release_sends(list_[index].receives[position]);
  }
  return std::move(first.map);
}

void Mailbox::send(size_t index, size_t position, const at::Tensor& map) {
  HEADROOM_CHECK(position == num_sent_[index],
                 cat("message ", position, " is not the next"));
  const StageMessage& message = list_[index].sends[position];
  if (map.numel() > 0) {
    Sending sending{index, message, map, nullptr};
    sending.work = stages_.send_async(map, message.peer);
    sending_.push_back(std::move(sending));
  }
  ++num_sent_[index];
}

void Mailbox::wait_for_sends(size_t index) {
  sending_.remove_if([index](const Sending& sending) {
    if (sending.index >= index) return false;
    sending.work->wait();
    return true;
  });
}

void Mailbox::release_sends(const StageMessage& arrived) {
  sending_.remove_if([&arrived](const Sending& sending) {
    const bool is_posted =
        sending.message.peer == arrived.peer &&
        sending.message.peer_instruction <= arrived.peer_instruction + 1;
    if (is_posted) sending.work->wait();
    return is_posted;
  });
}

}  // namespace headroom::pipeline
