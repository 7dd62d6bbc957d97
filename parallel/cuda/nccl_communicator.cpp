#include "parallel/cuda/nccl_communicator.h"

#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/cuda/nccl_connection.h"
#include "parallel/cuda/nccl_limits.h"
#include "parallel/cuda/nccl_ranks.h"
#include "parallel/cuda/shared_devices.h"

namespace headroom::cuda {
namespace {

using collectives::DoneWork;

ncclDataType_t nccl_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    case at::kByte:
      return ncclUint8;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    default:
      HEADROOM_CHECK(false, std::string("collectives do not take ") +
                                c10::toString(tensor.scalar_type()));
  }
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

// A tensor in the form that NCCL takes: elements in storage order, on the
// device.
struct Operand {
  at::Tensor given;
  at::Tensor flat;

  Operand(const at::Tensor& tensor, c10::Device here) : given(tensor.detach()) {
    HEADROOM_CHECK(tensor.is_non_overlapping_and_dense(),
                   "collectives take tensors without holes or overlap");
    HEADROOM_CHECK(tensor.is_cpu() || tensor.device() == here,
                   "a tensor on another device");
    flat = given.as_strided({given.numel()}, {1});
    if (tensor.is_cpu()) flat = flat.to(here);
  }

  bool is_staged() const { return given.is_cpu(); }
  void give_back() const { given.as_strided({given.numel()}, {1}).copy_(flat); }
};

class NcclWork final : public collectives::Work {
 public:
  // If `result` is a CPU tensor, wait() copies the values to it. `source` is
  // only kept alive.
  NcclWork(std::shared_ptr<NcclConnection> connection, const char* operation,
           OperationEnd end, Operand result, at::Tensor source = {})
      : connection_(std::move(connection)),
        operation_(operation),
        end_(std::move(end)),
        result_(std::move(result)),
        source_(std::move(source)) {}

  // Makes the current stream wait for the operation, so that tensors allocated
  // next do not get memory that the operation still uses.
  ~NcclWork() override {
    if (!end_) return;
    try {
      connection_->order_behind(end_);
    } catch (const std::exception&) {
      // The next call on the communicator throws this failure.
    }
  }

  void wait() override {
    if (!end_) return;
    const OperationEnd end = std::exchange(end_, nullptr);
    connection_->order_behind(end);
    if (!result_.is_staged()) return;
    connection_->wait_on_host(end, operation_);
    result_.give_back();
  }

 private:
  const std::shared_ptr<NcclConnection> connection_;
  const char* const operation_;
  OperationEnd end_;
  const Operand result_;
  const at::Tensor source_;
};

class NcclCommunicator final : public collectives::Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclRanks> ranks,
                   std::shared_ptr<collectives::Communicator> host)
      : ranks_(std::move(ranks)),
        host_(std::move(host)),
        rank_(host_->rank()),
        size_(host_->size()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // The first operation makes NCCL load its kernels and allocate its memory.
  void connect() override { connect_with(kMostNcclChannels); }
  void connect_for_small_sums() override { connect_with(kSmallSumChannels); }
  void connect_with(int channels) {
    if (connection_ != nullptr || size_ == 1) return;
    connection_ = ranks_->connection(*host_, channels);
    all_reduce(at::zeros({1}, at::TensorOptions(ranks_->device())));
    synchronize();
  }

  std::unique_ptr<collectives::Work> all_reduce_async(
      const at::Tensor& tensor, collectives::ReduceOp op) override {
    if (tensor.numel() == 0) return std::make_unique<DoneWork>();
    Operand whole = operand(tensor);
    return begin(
        "all_reduce", whole, {}, [&](ncclComm_t ranks, cudaStream_t stream) {
          return ncclAllReduce(
              whole.flat.const_data_ptr(), whole.flat.mutable_data_ptr(),
              count_of(whole.flat), nccl_type_of(whole.flat),
              op == collectives::ReduceOp::kSum ? ncclSum : ncclMax, ranks,
              stream);
        });
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    all_gather_async(output, input)->wait();
  }

  // One launch: NCCL runs the calls of a group together.
  void all_gather_pieces(const at::Tensor& flat,
                         const std::vector<int64_t>& part_sizes) override {
    if (flat.numel() == 0) return;
    Operand whole = operand(flat);
    begin("all_gather", whole, {}, [&](ncclComm_t ranks, cudaStream_t stream) {
      return gather_pieces(whole.flat, part_sizes, ranks, stream);
    })->wait();
  }

  std::unique_ptr<collectives::Work> all_gather_async(
      const at::Tensor& output, const at::Tensor& input) override {
    collectives::check_multiple(output, input, size());
    if (input.numel() == 0) return std::make_unique<DoneWork>();
    Operand whole = operand(output);
    Operand part = operand(input);
    return begin("all_gather", whole, part.flat,
                 [&](ncclComm_t ranks, cudaStream_t stream) {
                   return ncclAllGather(part.flat.const_data_ptr(),
                                        whole.flat.mutable_data_ptr(),
                                        count_of(part.flat),
                                        nccl_type_of(part.flat), ranks, stream);
                 });
  }
  bool gathers_in_background() const override { return true; }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    collectives::check_multiple(input, output, size());
    if (output.numel() == 0) return;
    Operand whole = operand(input);
    Operand part = operand(output);
    begin("reduce_scatter", part, whole.flat,
          [&](ncclComm_t ranks, cudaStream_t stream) {
            return ncclReduceScatter(
                whole.flat.const_data_ptr(), part.flat.mutable_data_ptr(),
                count_of(part.flat), nccl_type_of(part.flat), ncclSum, ranks,
                stream);
          })
        ->wait();
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    collectives::check_rank(root, size());
    if (tensor.numel() == 0) return;
    Operand whole = operand(tensor);
    begin("broadcast", whole, {}, [&](ncclComm_t ranks, cudaStream_t stream) {
      return ncclBroadcast(whole.flat.const_data_ptr(),
                           whole.flat.mutable_data_ptr(), count_of(whole.flat),
                           nccl_type_of(whole.flat), root, ranks, stream);
    })->wait();
  }

  // Connects the pairs in one order on all ranks. The first message makes NCCL
  // connect a pair, and then the host waits for the other rank; in a step,
  // ranks that wait for each other would never go on.
  void connect_messages() override {
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        if (from == to || (rank_ != from && rank_ != to)) continue;
        auto& messages = messages_[{from, to}];
        if (messages != nullptr) continue;
        messages = ranks_->messages(*host_, from, to);
        const at::Tensor first =
            at::zeros({1}, at::TensorOptions(ranks_->device()));
        rank_ == from ? send(first, to) : recv(first, from);
        messages->synchronize();
      }
    }
  }

  std::unique_ptr<collectives::Work> send_async(const at::Tensor& tensor,
                                                int to) override {
    Operand whole = operand(tensor);
    return begin_on(messages(rank_, to), "send", whole, {},
                    [&](ncclComm_t pair, cudaStream_t stream) {
                      return ncclSend(whole.flat.const_data_ptr(),
                                      count_of(whole.flat),
                                      nccl_type_of(whole.flat),
                                      NcclRanks::kReceiver, pair, stream);
                    });
  }
  std::unique_ptr<collectives::Work> recv_async(const at::Tensor& tensor,
                                                int from) override {
    Operand whole = operand(tensor);
    return begin_on(messages(from, rank_), "recv", whole, {},
                    [&](ncclComm_t pair, cudaStream_t stream) {
                      return ncclRecv(whole.flat.mutable_data_ptr(),
                                      count_of(whole.flat),
                                      nccl_type_of(whole.flat),
                                      NcclRanks::kSender, pair, stream);
                    });
  }

  void check() override { ranks_->throw_if_failed(); }
  void synchronize() override {
    ranks_->throw_if_failed();
    if (connection_ != nullptr) connection_->synchronize();
    for (const auto& [pair, messages] : messages_) messages->synchronize();
  }
  std::shared_ptr<const int32_t> failure_word() const override {
    return ranks_->failure_word();
  }
  void abandon() override { ranks_->abandon(); }

  void barrier() override {
    // Reduces a CPU tensor, so that the host waits too.
    all_reduce(at::zeros({1}, at::kLong));
  }

  std::unique_ptr<collectives::Communicator> split(int color,
                                                   int key) override {
    return std::make_unique<NcclCommunicator>(ranks_, host_->split(color, key));
  }

 private:
  ncclResult_t gather_pieces(const at::Tensor& flat,
                             const std::vector<int64_t>& part_sizes,
                             ncclComm_t ranks, cudaStream_t stream) const {
    ncclResult_t result = ncclGroupStart();
    int64_t begin = 0;
    for (const int64_t part : part_sizes) {
      if (result != ncclSuccess) break;
      const at::Tensor piece = flat.narrow(0, begin, part * size_);
      if (part > 0) {
        const at::Tensor own = piece.narrow(0, part * rank_, part);
        result = ncclAllGather(own.const_data_ptr(), piece.mutable_data_ptr(),
                               count_of(own), nccl_type_of(own), ranks, stream);
      }
      begin += part * size_;
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  }

  const std::shared_ptr<NcclConnection>& messages(int from, int to) const {
    const auto known = messages_.find({from, to});
    HEADROOM_CHECK(known != messages_.end(),
                   cat("no messages are connected from rank ", from, " to ", to,
                       " of ", size_));
    return known->second;
  }

  Operand operand(const at::Tensor& tensor) const {
    return Operand(tensor, ranks_->device());
  }

  template <typename Call>
  std::unique_ptr<collectives::Work> begin(const char* operation,
                                           const Operand& result,
                                           const at::Tensor& source,
                                           const Call& call) {
    ranks_->throw_if_failed();
    if (connection_ == nullptr) {
      connection_ = ranks_->connection(*host_, kMostNcclChannels);
    }
    return begin_on(connection_, operation, result, source, call);
  }
  template <typename Call>
  std::unique_ptr<collectives::Work> begin_on(
      const std::shared_ptr<NcclConnection>& connection, const char* operation,
      const Operand& result, const at::Tensor& source, const Call& call) {
    return std::make_unique<NcclWork>(connection, operation,
                                      connection->issue(operation, call),
                                      result, source);
  }

  const std::shared_ptr<NcclRanks> ranks_;
  const std::shared_ptr<collectives::Communicator> host_;
  const int rank_, size_;
  // nullptr before the first operation
  std::shared_ptr<NcclConnection> connection_;
  // By sender and receiver; empty before connect_messages().
  std::map<std::pair<int, int>, std::shared_ptr<NcclConnection>> messages_;
};

class NcclDeviceRanks final : public collectives::DeviceRanks {
 public:
  explicit NcclDeviceRanks(const NcclConnection::Place& place)
      : ranks_(std::make_shared<NcclRanks>(place)) {}

  std::unique_ptr<collectives::Communicator> over(
      collectives::Communicator& host) override {
    return std::make_unique<NcclCommunicator>(
        ranks_, std::shared_ptr<collectives::Communicator>(
                    &host, [](collectives::Communicator*) {}));
  }

 private:
  const std::shared_ptr<NcclRanks> ranks_;
};

}  // namespace

std::shared_ptr<collectives::DeviceRanks> make_nccl_ranks(
    collectives::Communicator& world, const NcclDevice& device,
    const devices::DeviceCommunicatorOptions& options) {
  if (!options.may_share_devices) refuse_shared_devices(world, device.uuid);
  NcclConnection::Place place;
  place.device = device.device;
  place.rank = world.rank();
  place.size = world.size();
  place.timeout = options.timeout;
  place.services = device.services;
  place.family = NcclFamily::make(device.failure_word);
  place.behind_each = options.behind_each;
  return std::make_shared<NcclDeviceRanks>(place);
}

void abort_nccl_communicators() { NcclFamily::abort_all("a peer was lost"); }

void prepare_nccl() {
  // Make all connections when the communicator is created, so that their device
  // memory is allocated before memory is measured.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // Reduction in the switch (NVLS) takes another 256 MiB of each card and is no
  // faster for buckets of a few MiB; and a process that dies during such a
  // reduction may leave errors on its peers' cards. NCCL_NVLS_ENABLE=1 turns
  // NVLS on.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  // The card takes work from this many queues. Streams that share a queue, as
  // with CUDA's usual 8, could make a message wait behind its own answer.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

}  // namespace headroom::cuda
