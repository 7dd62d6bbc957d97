#include "parallel/data_parallel/gradient_reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/plan/exchange_sizes.h"

namespace headroom::data_parallel {
namespace {

// The size of yolov5s' first two convolutions. Summing this many bytes takes
// less time than the latency of one all-reduce.
constexpr int64_t kStemBytes = 64 << 10;

// The number of leading slots that are kept for the last bucket.
int64_t num_stem_slots(const std::vector<FlatBuffer::Slot>& slots,
                       int64_t max_elements) {
  int64_t count = 1;
  while (count < static_cast<int64_t>(slots.size()) &&
         slots[count].offset + slots[count].size <= max_elements) {
    ++count;
  }
  return count;
}

}  // namespace

std::vector<Bucket> carve_buckets(const std::vector<FlatBuffer::Slot>& slots,
                                  int64_t flat_buffer_size,
                                  int64_t element_size, int64_t bucket_bytes) {
  HEADROOM_CHECK(element_size > 0 && bucket_bytes > 0, "no positive size");
  if (slots.empty()) return {};
  const int64_t bucket_elements =
      std::max<int64_t>(1, bucket_bytes / element_size);
  const int64_t stem_slots =
      num_stem_slots(slots, std::min(kStemBytes, bucket_bytes) / element_size);

  std::vector<Bucket> buckets;
  const auto close = [&](int64_t first, int64_t last, int64_t end) {
    const int64_t offset = slots[first].offset;
    buckets.push_back({first, last, offset, end - offset});
    return offset;
  };
  int64_t last = static_cast<int64_t>(slots.size());
  int64_t end = flat_buffer_size;
  for (int64_t slot = last - 1; slot >= stem_slots; --slot) {
    if (end - slots[slot].offset >= bucket_elements || slot == stem_slots) {
      end = close(slot, last, end);
      last = slot;
    }
  }
  close(0, last, end);
  return buckets;
}

// The state that the hooks share. It outlives the reducer, and is then
// inactive.
struct GradientReducer::State {
  State(FlatBuffer& flat_buffer_of_gradients,
        collectives::Communicator& of_ranks)
      : flat_buffer(flat_buffer_of_gradients), communicator(of_ranks) {}

  FlatBuffer& flat_buffer;
  collectives::Communicator& communicator;
  std::vector<Bucket> buckets;
  std::vector<int64_t> bucket_of_slot;

  bool active = true;  // false once the reducer is destroyed
  bool reducing = false;
  std::vector<bool> seen;            // for each slot: its gradient is final
  std::vector<int64_t> num_missing;  // for each bucket: gradients not final yet
  int64_t num_started = 0;           // buckets [0, num_started) are started
  std::vector<std::unique_ptr<collectives::Work>> under_way;

  void on_ready(int64_t slot);
  void start_next();
  void wait_for_started();
  void reduce_extra(std::span<at::Tensor> extra);
};

class GradientReducer::ReadyHook final
    : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(std::shared_ptr<State> state, int64_t slot)
      : state_(std::move(state)), slot_(slot) {}
  void operator()(const at::Tensor&) override {
    if (state_->active && state_->reducing) state_->on_ready(slot_);
  }

 private:
  std::shared_ptr<State> state_;
  const int64_t slot_;
};

void GradientReducer::State::on_ready(int64_t slot) {
  const std::string& name = flat_buffer.slots()[slot].name;
  HEADROOM_CHECK(!seen[slot],
                 "a second backward after one begin(): the "
                 "gradient of " +
                     name + " may be on its way");
  // A gradient outside the flat buffer would be reduced as zeros.
  HEADROOM_CHECK(
      flat_buffer.entry(slot).grad().is_alias_of(flat_buffer.gradients()),
      "the gradient of " + name + " is no view of the flat buffer");
  seen[slot] = true;
  --num_missing[bucket_of_slot[slot]];
  // Every rank must issue the buckets in the same order, so a ready bucket
  // waits for those before it.
  while (num_started < static_cast<int64_t>(buckets.size()) &&
         num_missing[num_started] == 0) {
    start_next();
  }
}

void GradientReducer::State::start_next() {
  const Bucket& bucket = buckets[num_started];
  under_way.push_back(communicator.all_reduce_async(
      flat_buffer.gradients().narrow(0, bucket.offset, bucket.size),
      collectives::ReduceOp::kSum));
  ++num_started;
}

void GradientReducer::State::wait_for_started() {
  for (const std::unique_ptr<collectives::Work>& work : under_way) work->wait();
  under_way.clear();
}

void GradientReducer::State::reduce_extra(std::span<at::Tensor> extra) {
  while (num_started < static_cast<int64_t>(buckets.size())) start_next();
  for (const at::Tensor& tensor : extra) {
    under_way.push_back(
        communicator.all_reduce_async(tensor, collectives::ReduceOp::kSum));
  }
  wait_for_started();
  num_started = 0;
  reducing = false;
}

GradientReducer::GradientReducer(FlatBuffer& flat_buffer,
                                 collectives::Communicator& communicator,
                                 int64_t bucket_bytes)
    : state_(std::make_shared<State>(flat_buffer, communicator)) {
  HEADROOM_CHECK(flat_buffer.gradients().defined(),
                 "a flat buffer without gradients");
  if (communicator.size() == 1) return;
  const int64_t num_slots = static_cast<int64_t>(flat_buffer.slots().size());
  const auto element_size =
      static_cast<int64_t>(flat_buffer.gradients().element_size());
  if (bucket_bytes == 0) {
    bucket_bytes = plan::bucket_bytes(flat_buffer.size() * element_size);
  }
  state_->buckets = carve_buckets(flat_buffer.slots(), flat_buffer.size(),
                                  element_size, bucket_bytes);
  state_->bucket_of_slot.resize(num_slots);
  for (size_t i = 0; i < state_->buckets.size(); ++i) {
    const Bucket& bucket = state_->buckets[i];
    for (int64_t slot = bucket.first_slot; slot < bucket.last_slot; ++slot) {
      state_->bucket_of_slot[slot] = static_cast<int64_t>(i);
    }
  }
  state_->seen.resize(num_slots);
  state_->num_missing.resize(state_->buckets.size());
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        flat_buffer.entry(slot), std::make_unique<ReadyHook>(state_, slot));
  }
}

GradientReducer::~GradientReducer() {
  state_->active = false;
  state_->under_way.clear();
}

void GradientReducer::begin(bool reduce) {
  State& state = *state_;
  if (state.communicator.size() == 1) return;
  HEADROOM_CHECK(state.num_started == 0,
                 "begin() while the gradients of a step are being reduced");
  state.reducing = reduce;
  if (!reduce) return;
  for (size_t i = 0; i < state.buckets.size(); ++i) state.num_missing[i] = 0;
  for (size_t slot = 0; slot < state.seen.size(); ++slot) {
    state.seen[slot] = false;
    if (state.flat_buffer.entry(static_cast<int64_t>(slot)).requires_grad()) {
      ++state.num_missing[state.bucket_of_slot[slot]];
    }
  }
}

void GradientReducer::finish(std::span<at::Tensor> extra) {
  if (state_->communicator.size() == 1) return;
  state_->reduce_extra(extra);
}

void GradientReducer::abandon() {
  state_->under_way.clear();
  state_->num_started = 0;
  state_->reducing = false;
}

int64_t GradientReducer::num_buckets() const {
  return static_cast<int64_t>(state_->buckets.size());
}

int64_t GradientReducer::num_started() const { return state_->num_started; }

}  // namespace headroom::data_parallel
