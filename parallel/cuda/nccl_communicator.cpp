#include "parallel/cuda/nccl_communicator.h"

#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/cuda/nccl_connection.h"
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

// A tensor as NCCL sees it: its elements in the order of their storage, on the
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
  // `result`: what a CPU tensor is filled with; `source` is only kept alive.
  NcclWork(std::shared_ptr<NcclConnection> connection, const char* operation,
           OperationEnd end, Operand result, at::Tensor source = {})
      : connection_(std::move(connection)),
        operation_(operation),
        end_(std::move(end)),
        result_(std::move(result)),
        source_(std::move(source)) {}

  // Memory that an operation still uses must not be given to the current
  // stream's next tensors.
  ~NcclWork() override {
    if (!end_) return;
    try {
      connection_->order_behind(end_);
    } catch (const std::exception&) {
      // Whoever uses the communicator next is told.
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
  explicit NcclCommunicator(std::shared_ptr<NcclConnection> connection)
      : connection_(std::move(connection)) {}

  int rank() const override { return connection_->place().rank; }
  int size() const override { return connection_->place().size; }

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

  std::unique_ptr<collectives::Work> send_async(const at::Tensor&,
                                                int) override {
    refuse_messages();
  }
  std::unique_ptr<collectives::Work> recv_async(const at::Tensor&,
                                                int) override {
    refuse_messages();
  }

  void check() override { connection_->throw_if_failed(); }
  void synchronize() override { connection_->synchronize(); }
  void abandon() override { connection_->abandon(); }

  void barrier() override {
    // Sums a CPU tensor, so that the host waits too.
    all_reduce(at::zeros({1}, at::kLong));
  }

  std::unique_ptr<collectives::Communicator> split(int color,
                                                   int key) override {
    HEADROOM_CHECK(color >= 0, "color " + std::to_string(color) +
                                   "; NCCL takes none below 0");
    return connected(connection_->split(color, key));
  }

  // NCCL loads its kernels, and takes what it still needs of the device, with
  // the first collective: here, where memory is not yet counted and a refusal
  // costs no step.
  static std::unique_ptr<collectives::Communicator> connected(
      std::shared_ptr<NcclConnection> connection) {
    auto made = std::make_unique<NcclCommunicator>(std::move(connection));
    if (made->size() > 1) {
      const c10::Device device = made->connection_->place().device;
      made->all_reduce(at::zeros({1}, at::TensorOptions(device)));
      made->synchronize();
    }
    return made;
  }

 private:
  [[noreturn]] static void refuse_messages() {
    throw Error("nccl",
                "messages between two ranks, which pipeline and spatial "
                "layouts need, do not go over NCCL in this version",
                "use --layout data=N, or --backend gloo");
  }

  Operand operand(const at::Tensor& tensor) const {
    return Operand(tensor, connection_->place().device);
  }

  template <typename Call>
  std::unique_ptr<collectives::Work> begin(const char* operation,
                                           const Operand& result,
                                           const at::Tensor& source,
                                           const Call& call) {
    return std::make_unique<NcclWork>(connection_, operation,
                                      connection_->issue(operation, call),
                                      result, source);
  }

  const std::shared_ptr<NcclConnection> connection_;
};

std::string text_of(const ncclUniqueId& id) {
  return {id.internal, sizeof(id.internal)};
}

}  // namespace

std::unique_ptr<collectives::Communicator> make_nccl_communicator(
    KeyValueStore& store, const std::string& prefix, int rank, int size,
    const NcclDevice& device,
    const devices::DeviceCommunicatorOptions& options) {
  collectives::check_rank(rank, size);
  if (!options.may_share_devices) {
    refuse_shared_devices(store, prefix, rank, size, device.uuid,
                          options.timeout);
  }
  NcclConnection::Place place;
  place.device = device.device;
  place.rank = rank;
  place.size = size;
  place.timeout = options.timeout;
  place.services = device.services;
  place.family = NcclFamily::make();
  place.behind_each = options.behind_each;
  // The process that makes an id listens for the others until they connect.
  ncclUniqueId id = {};
  if (rank == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) {
      throw CommunicationError(std::string("rank 0 makes NCCL's id: ") +
                               ncclGetLastError(nullptr));
    }
    store.set(prefix + "/id", text_of(id));
  } else {
    const std::string text = store.get(prefix + "/id", options.timeout);
    HEADROOM_CHECK(text.size() == sizeof(id.internal),
                   "an id of " + std::to_string(text.size()) + " bytes");
    std::memcpy(id.internal, text.data(), text.size());
  }
  return NcclCommunicator::connected(std::make_shared<NcclConnection>(
      place, [&](ncclConfig_t* config, ncclComm_t* made) {
        return ncclCommInitRankConfig(made, size, id, rank, config);
      }));
}

void abort_nccl_communicators() { NcclFamily::abort_all("a peer was lost"); }

void prepare_nccl() {
  // Connections are made with the communicator: whatever they take of the
  // device is taken before it is measured.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

}  // namespace headroom::cuda
