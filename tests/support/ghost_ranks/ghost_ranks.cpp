#include "tests/support/ghost_ranks/ghost_ranks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/backend_parts.h"
#include "tests/support/ghost_ranks/stream_time.h"

namespace headroom {
namespace {

using collectives::Communicator;
using collectives::ReduceOp;
using collectives::Work;
using Clock = std::chrono::steady_clock;

// A sleeping thread wakes up about 100 us too late.
constexpr auto kWakesLate = std::chrono::microseconds(100);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

// An all-reduce moves the data in two directions, a gather or a broadcast in
// one, which takes half of the time.
constexpr double kOneWay = 0.5;

}  // namespace

struct GhostRanks::State {
  State(const Options& given, const devices::ComputeDevice& of)
      : options(given), device(of) {}

  const Options options;
  const devices::ComputeDevice device;
  // The communicator of this rank alone on the host, in addition to NCCL's.
  const std::unique_ptr<Communicator> alone =
      collectives::make_single_communicator();
  // The modelled seconds of the call in progress.
  double holds = 0;
  StreamMoment end;
  bool measures_exposed = false;
  // For each wait of a stream for an operation: the moment when the stream had
  // finished its earlier work, and the moment when the operation ended.
  std::vector<std::pair<StreamMoment, StreamMoment>> waits;
  Figures figures;
  // The host's operations run one after another, as in a thread of Gloo's.
  Clock::time_point host_is_free;

  double device_seconds(int64_t bytes) const {
    return predict::sum_time(options.machines, options.size,
                             static_cast<double>(bytes))
        .least();
  }
  double host_seconds(int64_t bytes) const {
    return predict::sum_time(options.machines, options.size,
                             static_cast<double>(bytes))
        .flat;
  }
  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(device.device().type())
        .getStream(device.device());
  }
  // Called when NCCL's call is queued on the stream: adds the holding kernel.
  void behind(const c10::Stream& operations) {
    hold_stream(operations, options.blocks, holds);
    if (measures_exposed) end = StreamMoment(operations);
  }
  void wait_until(Clock::time_point done) {
    const Clock::time_point begin = Clock::now();
    if (done - begin > kWakesLate) {
      std::this_thread::sleep_until(done - kWakesLate);
    }
    while (Clock::now() < done) std::this_thread::yield();
    ++figures.host_waits;
    figures.host_wait_seconds += seconds_since(begin);
  }
};

// Work that is finished when n real ranks would have finished it.
class GhostRanks::HostWork final : public Work {
 public:
  HostWork(std::shared_ptr<State> state, double seconds)
      : state_(std::move(state)) {
    State& its = *state_;
    its.host_is_free =
        std::max(its.host_is_free, Clock::now()) + duration_of(seconds);
    done_ = its.host_is_free;
  }
  void wait() override { state_->wait_until(done_); }

 private:
  const std::shared_ptr<State> state_;
  Clock::time_point done_;
};

class GhostRanks::DeviceWork final : public Work {
 public:
  DeviceWork(std::shared_ptr<State> state, std::unique_ptr<Work> work)
      : state_(std::move(state)), work_(std::move(work)), end_(state_->end) {}
  void wait() override {
    if (state_->measures_exposed) {
      state_->waits.emplace_back(StreamMoment(state_->current_stream()), end_);
    }
    work_->wait();
  }

 private:
  const std::shared_ptr<State> state_;
  const std::unique_ptr<Work> work_;
  const StreamMoment end_;
};

class GhostRanks::World final : public Communicator {
 public:
  // `alone` is a communicator of this rank alone, over NCCL.
  World(std::shared_ptr<State> state, std::unique_ptr<Communicator> alone)
      : state_(std::move(state)), alone_(std::move(alone)) {}

  int rank() const override { return 0; }
  int size() const override { return state_->options.size; }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    if (!tensor.is_cpu()) {
      if (tensor.scalar_type() == at::kDouble && op == ReduceOp::kSum) {
        const at::NoGradGuard no_grad;
        at::Tensor(tensor).mul_(size());
      }
      return issue(state_->device_seconds(bytes_of(tensor)),
                   [&] { return alone_->all_reduce_async(tensor, op); });
    }
    check();
    if (op == ReduceOp::kSum) collectives::flat_view(tensor).mul_(size());
    return on_host(bytes_of(tensor), 1);
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    all_gather_async(output, input)->wait();
  }
  std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                         const at::Tensor& input) override {
    collectives::check_multiple(output, input, size());
    if (!output.is_cpu()) {
      return issue(kOneWay * state_->device_seconds(bytes_of(output)), [&] {
        return alone_->all_gather_async(own_part(output, input.numel()), input);
      });
    }
    check();
    collectives::flat_view(output).copy_(
        collectives::flat_view(input).repeat({size()}));
    return on_host(bytes_of(output), kOneWay);
  }
  bool gathers_in_background() const override { return true; }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    collectives::check_multiple(input, output, size());
    const at::Tensor own = own_part(input, output.numel());
    if (!output.is_cpu()) {
      return issue_and_wait(kOneWay * state_->device_seconds(bytes_of(input)),
                            [&] { alone_->reduce_scatter(output, own); });
    }
    check();
    collectives::flat_view(output).copy_(own).mul_(size());
    on_host(bytes_of(input), kOneWay)->wait();
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    collectives::check_rank(root, size());
    if (!tensor.is_cpu()) {
      return issue_and_wait(kOneWay * state_->device_seconds(bytes_of(tensor)),
                            [&] { alone_->broadcast(tensor, 0); });
    }
    check();
    on_host(bytes_of(tensor), kOneWay)->wait();
  }

  std::unique_ptr<Work> send_async(const at::Tensor&, int) override {
    refuse_messages();
  }
  std::unique_ptr<Work> recv_async(const at::Tensor&, int) override {
    refuse_messages();
  }

  void barrier() override {
    check();
    on_host(sizeof(int64_t), 1)->wait();
  }
  void connect() override { alone_->connect(); }
  void check() override { alone_->check(); }
  void synchronize() override { alone_->synchronize(); }
  std::shared_ptr<const int32_t> failure_word() const override {
    return alone_->failure_word();
  }
  void abandon() override { alone_->abandon(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<World>(state_, alone_->split(color, key));
  }

 private:
  [[noreturn]] static void refuse_messages() {
    throw Error("ghost ranks", "a ghost answers no message",
                "use a layout of data alone");
  }
  static int64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }
  // The part of `whole` that belongs to this rank, which is the first one.
  static at::Tensor own_part(const at::Tensor& whole, int64_t count) {
    return whole.detach().as_strided({count}, {1});
  }

  std::unique_ptr<Work> on_host(int64_t bytes, double share) const {
    return std::make_unique<HostWork>(state_,
                                      share * state_->host_seconds(bytes));
  }

  // `call` begins an operation that takes `seconds`.
  template <typename Call>
  void count_call(double seconds, const Call& call) const {
    RECORD_FUNCTION("ghost_ranks::issue", std::vector<c10::IValue>());
    State& its = *state_;
    its.holds = seconds;
    const Clock::time_point begin = Clock::now();
    call();
    its.figures.issue_seconds += seconds_since(begin);
    its.figures.held_seconds += seconds;
    ++its.figures.sums;
  }
  template <typename Call>
  std::unique_ptr<Work> issue(double seconds, const Call& call) const {
    std::unique_ptr<Work> work;
    count_call(seconds, [&] { work = call(); });
    return std::make_unique<DeviceWork>(state_, std::move(work));
  }
  // As issue(), for a `call` that also makes the current stream wait for its
  // operation.
  template <typename Call>
  void issue_and_wait(double seconds, const Call& call) const {
    State& its = *state_;
    StreamMoment idle;
    if (its.measures_exposed) idle = StreamMoment(its.current_stream());
    count_call(seconds, call);
    if (its.measures_exposed) its.waits.emplace_back(idle, its.end);
  }

  const std::shared_ptr<State> state_;
  const std::unique_ptr<Communicator> alone_;
};

GhostRanks::GhostRanks(const Options& options,
                       const devices::ComputeDevice& device)
    : state_(std::make_shared<State>(options, device)) {
  HEADROOM_CHECK(options.size > 1, "a world of one rank has no ghosts");
  HEADROOM_CHECK(options.machines.cards() == options.size,
                 std::to_string(options.machines.cards()) + " cards for " +
                     std::to_string(options.size) + " ranks");
  if (device.is_cpu()) {
    throw Error("ghost ranks", "the CPU has no NCCL to call",
                "name a device with --device");
  }
  hold_stream(state_->current_stream(), options.blocks, 0);
}

GhostRanks::~GhostRanks() = default;

std::unique_ptr<Communicator> GhostRanks::make_world() {
  devices::DeviceCommunicatorOptions options;
  options.device = state_->device.device().index();
  // The owner of this function is the communicator that calls it.
  options.behind_each = [state = state_.get()](const c10::Stream& operations) {
    state->behind(operations);
  };
  const auto made =
      state_->device.api()->connect_ranks(*state_->alone, options);
  if (made == nullptr) {
    throw Error("ghost ranks", "this device's ranks go through the host",
                "build where NCCL's header is");
  }
  return std::make_unique<World>(state_, made->over(*state_->alone));
}

void GhostRanks::measure_exposed(bool measures) {
  state_->measures_exposed = measures;
}

GhostRanks::Figures GhostRanks::take() {
  Figures figures = std::exchange(state_->figures, {});
  for (const auto& [idle, end] : std::exchange(state_->waits, {})) {
    figures.exposed_seconds += std::max(0.0, end.seconds_since(idle));
  }
  return figures;
}

}  // namespace headroom
