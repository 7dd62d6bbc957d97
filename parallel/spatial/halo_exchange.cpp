#include "parallel/spatial/halo_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::spatial {
namespace {

constexpr int64_t kRows = 2;  // the rows' dimension in [N, C, H, W]

at::Tensor empty_rows(const at::Tensor& like, int64_t rows) {
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  return at::empty(
      {like.size(0), like.size(1), rows, like.size(3)},
      like.options().memory_format(at::MemoryFormat::ChannelsLast));
}

// Rows of several samples are not contiguous, so they are copied.
at::Tensor one_piece(const at::Tensor& rows) {
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  return rows.contiguous(at::MemoryFormat::ChannelsLast);
}

// The messages of one exchange, with their memory. All memory is allocated
// before the first message is sent: a rank that runs out of memory has not
// begun the exchange.
class Messages {
 public:
  // REQUIRES for send() and receive(): `rows` is contiguous (channels-last).
  void send(const at::Tensor& rows, int peer) {
    sends_.push_back({rows, peer});
  }
  void receive(const at::Tensor& rows, int peer) {
    receives_.push_back({rows, peer});
  }

  void exchange(collectives::Communicator& ranks) const {
    std::vector<std::unique_ptr<collectives::Work>> works;
    for (const Message& message : receives_)
      works.push_back(ranks.recv_async(message.rows, message.peer));
    for (const Message& message : sends_)
      works.push_back(ranks.send_async(message.rows, message.peer));
    for (const std::unique_ptr<collectives::Work>& work : works) work->wait();
  }

 private:
  struct Message {
    at::Tensor rows;
    int peer;
  };
  std::vector<Message> receives_;
  std::vector<Message> sends_;
};

}  // namespace

CommunicatorHaloExchange::CommunicatorHaloExchange(
    collectives::Communicator& spatial_ranks, const ImageSplit& partition)
    : ranks_(spatial_ranks), partition_(partition) {
  HEADROOM_CHECK(ranks_.size() == partition.spatial_parallel_size(),
                 cat(ranks_.size(), " ranks for ",
                     partition.spatial_parallel_size(), " parts of an image"));
}

RowWindow CommunicatorHaloExchange::window(int64_t local_rows) const {
  const int64_t rows_per_block =
      partition_.rows_per_block(ranks_.rank(), local_rows);
  return {partition_.rows_of(ranks_.rank(), rows_per_block).begin,
          partition_.num_blocks() * rows_per_block};
}

at::Tensor CommunicatorHaloExchange::receive(const at::Tensor& x, int64_t top,
                                             int64_t bottom,
                                             double beyond_edge) {
  const HaloPlan plan = this->plan(x.size(kRows), top, bottom);
  const at::Tensor halo = empty_rows(x, top + bottom);
  halo.narrow(kRows, 0, plan.rows_above_edge).fill_(beyond_edge);
  halo.narrow(kRows, top + bottom - plan.rows_below_edge, plan.rows_below_edge)
      .fill_(beyond_edge);
  if (x.numel() == 0) return halo;

  Messages messages;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const HaloPiece& piece : plan.receives) {
    at::Tensor place = halo.narrow(
        kRows, place_in_halo(plan, piece.rows.begin, top), piece.rows.size());
    if (place.is_contiguous(at::MemoryFormat::ChannelsLast)) {
      messages.receive(place, piece.peer);
    } else {
      copies.emplace_back(place, empty_rows(x, piece.rows.size()));
      messages.receive(copies.back().second, piece.peer);
    }
  }
  for (const HaloPiece& piece : plan.sends)
    messages.send(one_piece(x.narrow(kRows, piece.rows.begin - plan.own.begin,
                                     piece.rows.size())),
                  piece.peer);
  messages.exchange(ranks_);
  for (const auto& [place, rows] : copies) place.copy_(rows);
  return halo;
}

void CommunicatorHaloExchange::give_back(const at::Tensor& dhalo,
                                         const at::Tensor& dx, int64_t top) {
  const HaloPlan plan =
      this->plan(dx.size(kRows), top, dhalo.size(kRows) - top);
  if (dx.numel() == 0) return;

  Messages messages;
  std::vector<at::Tensor> returned;
  for (const HaloPiece& piece : plan.sends) {
    returned.push_back(empty_rows(dx, piece.rows.size()));
    messages.receive(returned.back(), piece.peer);
  }
  for (const HaloPiece& piece : plan.receives)
    messages.send(one_piece(dhalo.narrow(
                      kRows, place_in_halo(plan, piece.rows.begin, top),
                      piece.rows.size())),
                  piece.peer);
  messages.exchange(ranks_);
  for (size_t i = 0; i < returned.size(); ++i) {
    const RowRange& rows = plan.sends[i].rows;
    dx.narrow(kRows, rows.begin - plan.own.begin, rows.size())
        .add_(returned[i]);
  }
}

HaloPlan CommunicatorHaloExchange::plan(int64_t local_rows, int64_t top,
                                        int64_t bottom) const {
  return plan_halo(partition_,
                   partition_.rows_per_block(ranks_.rank(), local_rows),
                   ranks_.rank(), top, bottom);
}

void CommunicatorHaloExchange::sum_over_images(const at::Tensor& values) {
  if (values.numel() > 0) ranks_.all_reduce(values);
}

}  // namespace headroom::spatial
