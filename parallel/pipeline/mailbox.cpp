#include "parallel/pipeline/mailbox.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom {

at::MemoryFormat map_format(at::IntArrayRef sizes) {
  return sizes.size() == 4 ? at::MemoryFormat::ChannelsLast
                           : at::MemoryFormat::Contiguous;
}

Mailbox::Mailbox(Communicator& stages, std::vector<InstructionMessages> list,
                 MapSizes map_sizes, const at::TensorOptions& map_options,
                 CompletionBuffers& buffers)
    : stages_(stages),
      list_(std::move(list)),
      map_sizes_(std::move(map_sizes)),
      map_options_(map_options),
      buffers_(buffers),
      num_posted_(list_.size(), 0),
      num_taken_(list_.size(), 0),
      num_sent_(list_.size(), 0) {
  int64_t largest = 0;
  for (size_t index = 0; index < list_.size(); ++index)
    for (const auto* side : {&list_[index].receives, &list_[index].sends})
      for (const StageMessage& message : *side)
        largest = std::max(largest, elements(index, message));
  if (buffers_.zeros.defined() && buffers_.zeros.numel() >= largest) return;
  buffers_.zeros = at::zeros({largest}, map_options_);
  buffers_.discard = at::zeros({largest}, map_options_);
}

void Mailbox::post_receives(size_t index) {
  const InstructionMessages& messages = list_[index];
  for (; num_posted_[index] < messages.receives.size(); ++num_posted_[index]) {
    const StageMessage& message = messages.receives[num_posted_[index]];
    const std::vector<int64_t> sizes =
        map_sizes_(messages.instruction.micro_batch, message.row);
    Receiving receiving;
    receiving.map =
        at::empty(sizes, map_options_.memory_format(map_format(sizes)));
    if (receiving.map.numel() > 0)
      receiving.work = stages_.recv_async(receiving.map, message.peer);
    receiving_.push_back(std::move(receiving));
  }
}

at::Tensor Mailbox::take(size_t index, size_t position) {
  HEADROOM_CHECK(position == num_taken_[index] && !receiving_.empty(),
                 "message " + std::to_string(position) + " is not the next");
  Receiving first = std::move(receiving_.front());
  receiving_.pop_front();
  ++num_taken_[index];
  if (first.work != nullptr) {
    first.work->wait();
    forget_sends_taken_before(list_[index].receives[position]);
  }
  return std::move(first.map);
}

void Mailbox::send(size_t index, size_t position, const at::Tensor& map) {
  HEADROOM_CHECK(position == num_sent_[index],
                 "message " + std::to_string(position) + " is not the next");
  const StageMessage& message = list_[index].sends[position];
  if (map.numel() > 0) {
    Sending sending{message, map, nullptr};
    sending.work = stages_.send_async(map, message.peer);
    sending_.push_back(std::move(sending));
  }
  ++num_sent_[index];
}

void Mailbox::complete_receives(size_t index) {
  while (num_taken_[index] < num_posted_[index]) take(index, num_taken_[index]);
  const std::vector<StageMessage>& receives = list_[index].receives;
  for (; num_posted_[index] < receives.size(); ++num_posted_[index]) {
    const StageMessage& message = receives[num_posted_[index]];
    const int64_t count = elements(index, message);
    if (count > 0)
      stages_.recv(buffers_.discard.narrow(0, 0, count), message.peer);
  }
}

void Mailbox::complete_sends(size_t index) {
  const std::vector<StageMessage>& sends = list_[index].sends;
  while (num_sent_[index] < sends.size()) {
    const int64_t count = elements(index, sends[num_sent_[index]]);
    send(index, num_sent_[index], buffers_.zeros.narrow(0, 0, count));
  }
}

void Mailbox::wait_for_sends() {
  for (const Sending& sending : sending_) sending.work->wait();
  sending_.clear();
}

int64_t Mailbox::elements(size_t index, const StageMessage& message) const {
  int64_t count = 1;
  for (const int64_t size :
       map_sizes_(list_[index].instruction.micro_batch, message.row))
    count *= size;
  return count;
}

void Mailbox::forget_sends_taken_before(const StageMessage& arrived) {
  sending_.remove_if([&arrived](const Sending& sending) {
    const bool is_taken =
        sending.message.peer == arrived.peer &&
        sending.message.peer_instruction <= arrived.peer_instruction;
    if (is_taken) sending.work->wait();
    return is_taken;
  });
}

}  // namespace headroom
