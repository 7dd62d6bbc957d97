// libheadroom_mpi.so: its exported function, and the MPI communicator.
#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/mpi_plugin.h"

namespace headroom::collectives {
namespace {

// Set to false by a failure, or by an exception that drops a communicator. The
// process then ends without MPI_Finalize, and mpirun ends its peers.
bool ends_well = true;

std::string message_of(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(length);
  return text;
}

void check_mpi(int code, const char* operation, int rank, int size) {
  if (code == MPI_SUCCESS) return;
  ends_well = false;
  throw CommunicationError(cat("rank ", rank, " of ", size, ", ", operation,
                               ": ", message_of(code)));
}

void initialize_once() {
  static const bool done = [] {
    int provided = MPI_THREAD_SINGLE;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) !=
            MPI_SUCCESS ||
        provided < MPI_THREAD_MULTIPLE) {
      throw Error("mpi",
                  cat("MPI offers thread level ", provided, " where ",
                      MPI_THREAD_MULTIPLE, " is needed"),
                  "use another MPI, or --backend gloo");
    }
    std::atexit([] {
      if (ends_well) MPI_Finalize();
    });
    return true;
  }();
  (void)done;
}

MPI_Datatype type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    default:  // flat_view allows no other type
      return MPI_UINT8_T;
  }
}

int count_of(const at::Tensor& tensor) {
  HEADROOM_CHECK(
      tensor.numel() <= std::numeric_limits<int>::max(),
      cat(tensor.numel(), " elements in one operation; MPI counts with int"));
  return static_cast<int>(tensor.numel());
}

class MpiWork final : public Work {
 public:
  MpiWork(const char* operation, at::Tensor tensor, MPI_Request request,
          int rank, int size)
      : operation_(operation),
        tensor_(std::move(tensor)),
        request_(request),
        rank_(rank),
        size_(size) {}

  // MPI cannot cancel a collective, and waiting for a dead peer would hang, so
  // the tensor is leaked; the process is about to end.
  ~MpiWork() override {
    if (request_ != MPI_REQUEST_NULL) {
      ends_well = false;
      new at::Tensor(std::move(tensor_));
    }
  }

  void wait() override {
    check_mpi(MPI_Wait(&request_, MPI_STATUS_IGNORE), operation_, rank_, size_);
  }

 private:
  const char* operation_;
  at::Tensor tensor_;
  MPI_Request request_;
  const int rank_;
  const int size_;
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm communicator)
      : communicator_(communicator) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
  }

  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > 0) ends_well = false;
    // MPI_Comm_free is collective and would hang after a peer has failed.
    if (ends_well) MPI_Comm_free(&communicator_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    at::Tensor flat = flat_view(tensor);
    MPI_Request request = MPI_REQUEST_NULL;
    check(
        MPI_Iallreduce(MPI_IN_PLACE, flat.data_ptr(), count_of(flat),
                       type_of(flat), op == ReduceOp::kSum ? MPI_SUM : MPI_MAX,
                       communicator_, &request),
        "all_reduce");
    return std::make_unique<MpiWork>("all_reduce", std::move(flat), request,
                                     rank_, size_);
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const at::Tensor whole = flat_view(output);
    const at::Tensor part = flat_view(input);
    check_multiple(whole, part, size_);
    const bool is_in_place =
        part.data_ptr() ==
        whole.narrow(0, rank_ * part.numel(), part.numel()).data_ptr();
    check(MPI_Allgather(is_in_place ? MPI_IN_PLACE : part.data_ptr(),
                        count_of(part), type_of(part), whole.data_ptr(),
                        count_of(part), type_of(part), communicator_),
          "all_gather");
  }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const at::Tensor whole = flat_view(input);
    const at::Tensor part = flat_view(output);
    check_multiple(whole, part, size_);
    check(MPI_Reduce_scatter_block(whole.data_ptr(), part.data_ptr(),
                                   count_of(part), type_of(part), MPI_SUM,
                                   communicator_),
          "reduce_scatter");
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    const at::Tensor flat = flat_view(tensor);
    check(MPI_Bcast(flat.data_ptr(), count_of(flat), type_of(flat), root,
                    communicator_),
          "broadcast");
  }

  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    at::Tensor flat = message_view(tensor);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(flat.data_ptr(), count_of(flat), type_of(flat), to, 0,
                    communicator_, &request),
          "send");
    return std::make_unique<MpiWork>("send", std::move(flat), request, rank_,
                                     size_);
  }

  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    at::Tensor flat = message_view(tensor);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(flat.data_ptr(), count_of(flat), type_of(flat), from, 0,
                    communicator_, &request),
          "recv");
    return std::make_unique<MpiWork>("recv", std::move(flat), request, rank_,
                                     size_);
  }

  void barrier() override { check(MPI_Barrier(communicator_), "barrier"); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    HEADROOM_CHECK(color >= 0,
                   cat("color ", color, "; MPI takes none below 0"));
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(communicator_, color, key, &part), "split");
    return std::make_unique<MpiCommunicator>(part);
  }

 private:
  void check(int code, const char* operation) const {
    check_mpi(code, operation, rank_, size_);
  }

  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
};

class OpenMpi final : public MpiApi {
 public:
  std::unique_ptr<Communicator> connect(int rank, int size) override {
    initialize_once();
    int started = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &started);
    if (started != size) {
      throw Error("mpi",
                  cat("mpirun started ", started,
                      " processes of this job, but world_size = ", size),
                  "start one worker per slot, or use --backend gloo");
    }
    MPI_Comm communicator = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &communicator), "connect",
              rank, size);
    return std::make_unique<MpiCommunicator>(communicator);
  }
};

}  // namespace
}  // namespace headroom::collectives

extern "C" headroom::collectives::MpiApi* headroom_mpi_api(int version) {
  using headroom::collectives::kMpiApiVersion;
  static headroom::collectives::OpenMpi api;
  return version == kMpiApiVersion ? &api : nullptr;
}
