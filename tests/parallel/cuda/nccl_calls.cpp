// Measures plain NCCL and CUDA without the project's code: the memory of NCCL's
// communicators on a card, the cost of a call for the host, and the behaviour
// of a call in a CUDA graph. Needs a card, which two processes share.
//
//   nccl_calls
//
// Prints lines of JSON:
//
//   bytes      MiB of a rank for the first communicator, and for all that are
//              split off it, with and without shared resources, and with at
//              most 8 blocks
//   calls      microseconds that the host needs for an all-reduce of 4 bytes,
//              on a blocking communicator and on a non-blocking, polled one
//   captured   an all-reduce in a graph: its sums are right, microseconds of a
//              replay
//   aborted    one rank replays the graph, but the other never does, so the
//              first aborts its communicator: seconds until its stream is free,
//              and whether the abort returned before the graph was destroyed
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kSplits = 5;
constexpr int kCalls = 200;
constexpr int kReplays = 20;
constexpr auto kPatience = std::chrono::seconds(10);

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " +
                           cudaGetErrorString(result));
}

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string(what) + ": " +
                           ncclGetErrorString(result));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The connection to the other rank through a socket.
class Peer {
 public:
  explicit Peer(int socket) : socket_(socket) {}
  void meet() {
    char byte = 0;
    give(&byte, 1);
    take(&byte, 1);
  }
  void give(const void* bytes, size_t count) {
    if (write(socket_, bytes, count) != static_cast<ssize_t>(count)) {
      throw std::runtime_error("the other rank is gone");
    }
  }
  void take(void* bytes, size_t count) {
    if (recv(socket_, bytes, count, MSG_WAITALL) !=
        static_cast<ssize_t>(count)) {
      throw std::runtime_error("the other rank is gone");
    }
  }

 private:
  const int socket_;
};

// Waits until a non-blocking call is done.
void settle(ncclComm_t ranks, ncclResult_t result, const char* what) {
  if (result != ncclInProgress) return check(result, what);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    check(ncclCommGetAsyncError(ranks, &state), what);
  }
  check(state, what);
}

class Rank {
 public:
  Rank(int rank, int socket) : rank_(rank), peer_(socket) {
    check(cudaSetDevice(0), "the card");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "a stream");
    check(cudaMalloc(reinterpret_cast<void**>(&number_), sizeof(float)),
          "memory");
  }

  void run() {
    for (const bool shares : {true, false}) measure_bytes(shares, 0);
    measure_bytes(/*shares=*/true, /*most_blocks=*/8);
    for (const bool blocks : {true, false}) time_calls(blocks);
    capture();
  }

 private:
  ncclComm_t connect(bool blocks, bool shares = true, int most_blocks = 0) {
    ncclUniqueId id = {};
    if (rank_ == 0) {
      check(ncclGetUniqueId(&id), "an id");
      peer_.give(&id, sizeof(id));
    } else {
      peer_.take(&id, sizeof(id));
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocks ? 1 : 0;
    config.splitShare = shares ? 1 : 0;
    if (most_blocks > 0) config.maxCTAs = most_blocks;
    ncclComm_t ranks = nullptr;
    const ncclResult_t begun =
        ncclCommInitRankConfig(&ranks, kRanks, id, rank_, &config);
    settle(ranks, begun, "connecting");
    return ranks;
  }

  void set_number(float value) {
    check(cudaMemcpy(number_, &value, sizeof(value), cudaMemcpyHostToDevice),
          "a copy");
  }
  float number() {
    check(cudaStreamSynchronize(stream_), "the stream");
    float value = 0;
    check(cudaMemcpy(&value, number_, sizeof(value), cudaMemcpyDeviceToHost),
          "a copy");
    return value;
  }

  void all_reduce(ncclComm_t ranks) {
    settle(ranks,
           ncclAllReduce(number_, number_, 1, ncclFloat32, ncclSum, ranks,
                         stream_),
           "a sum");
  }

  void end(ncclComm_t ranks) {
    settle(ranks, ncclCommFinalize(ranks), "the end");
    check(ncclCommDestroy(ranks), "the end");
  }

  // Half of the memory that both ranks use on the card. Both measure at the
  // same point.
  double taken_mib() {
    check(cudaDeviceSynchronize(), "the card");
    peer_.meet();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "memory");
    peer_.meet();
    return static_cast<double>(total - free) / kRanks / (1 << 20);
  }

  void measure_bytes(bool shares, int most_blocks) {
    const double before = taken_mib();
    const ncclComm_t world = connect(/*blocks=*/true, shares, most_blocks);
    set_number(0);
    all_reduce(world);
    const double with_world = taken_mib();
    ncclComm_t splits[kSplits] = {};
    for (ncclComm_t& split : splits) {
      check(ncclCommSplit(world, 0, rank_, &split, nullptr), "a split");
      all_reduce(split);
    }
    const double with_splits = taken_mib();
    if (rank_ == 0) {
      std::printf(
          "{\"what\": \"bytes\", \"splits_share\": %s, \"most_blocks\": %d, "
          "\"world_MiB\": %.1f, \"split_MiB\": %.1f}\n",
          shares ? "true" : "false", most_blocks, with_world - before,
          (with_splits - with_world) / kSplits);
      std::fflush(stdout);
    }
    for (const ncclComm_t split : splits) end(split);
    end(world);
    peer_.meet();
  }

  void time_calls(bool blocks) {
    const ncclComm_t ranks = connect(blocks);
    set_number(0);
    all_reduce(ranks);
    check(cudaStreamSynchronize(stream_), "the stream");
    double calling = 0;
    for (int call = 0; call < kCalls; ++call) {
      const Clock::time_point begin = Clock::now();
      all_reduce(ranks);
      calling += seconds_since(begin);
      // Empties the queue, because a full one would make the host wait.
      check(cudaStreamSynchronize(stream_), "the stream");
    }
    if (rank_ == 0) {
      std::printf(
          "{\"what\": \"calls\", \"blocking\": %s, \"call_us\": %.2f}\n",
          blocks ? "true" : "false", 1e6 * calling / kCalls);
      std::fflush(stdout);
    }
    peer_.meet();
    end(ranks);
    peer_.meet();
  }

  void capture() {
    const ncclComm_t ranks = connect(/*blocks=*/false);
    set_number(1);
    all_reduce(ranks);  // opens connections that are made on first use
    check(cudaStreamSynchronize(stream_), "the stream");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replayed = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "a capture");
    all_reduce(ranks);
    check(cudaStreamEndCapture(stream_, &graph), "a capture");
    check(cudaGraphInstantiate(&replayed, graph, 0), "a graph");
    set_number(1);
    peer_.meet();
    const Clock::time_point begin = Clock::now();
    float expected = 1;
    for (int replay = 0; replay < kReplays; ++replay) {
      check(cudaGraphLaunch(replayed, stream_), "a replay");
      expected *= kRanks;
    }
    const float sum = number();
    const double seconds = seconds_since(begin);
    if (rank_ == 0) {
      std::printf(
          "{\"what\": \"captured\", \"sums_are_right\": %s, \"replay_us\": "
          "%.2f}\n",
          sum == expected ? "true" : "false", 1e6 * seconds / kReplays);
      std::fflush(stdout);
    }
    peer_.meet();
    if (rank_ != 0) {
      peer_.meet();  // the other rank has aborted
      std::_Exit(0);
    }
    abort_replay(ranks, graph, replayed);
  }

  void abort_replay(ncclComm_t ranks, cudaGraph_t graph,
                    cudaGraphExec_t replayed) {
    check(cudaGraphLaunch(replayed, stream_), "a replay");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const bool waited = cudaStreamQuery(stream_) == cudaErrorNotReady;
    const Clock::time_point begin = Clock::now();
    std::atomic<bool> returned = false;
    std::thread aborting([&] {
      static_cast<void>(cudaSetDevice(0));
      static_cast<void>(ncclCommAbort(ranks));
      returned = true;
    });
    while (cudaStreamQuery(stream_) == cudaErrorNotReady &&
           Clock::now() - begin < kPatience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool is_free = cudaStreamQuery(stream_) != cudaErrorNotReady;
    const double freed = seconds_since(begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const bool returned_before = returned;
    static_cast<void>(cudaGraphExecDestroy(replayed));
    static_cast<void>(cudaGraphDestroy(graph));
    while (!returned && Clock::now() - begin < 2 * kPatience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::printf(
        "{\"what\": \"aborted\", \"peer_was_waited_for\": %s, "
        "\"stream_is_free\": %s, \"free_after_s\": %.3f, "
        "\"returned_before_the_graph_was_destroyed\": %s, \"returned\": %s}\n",
        waited ? "true" : "false", is_free ? "true" : "false", freed,
        returned_before ? "true" : "false", returned ? "true" : "false");
    std::fflush(stdout);
    peer_.meet();
    std::_Exit(0);  // because the thread may never return
  }

  const int rank_;
  Peer peer_;
  cudaStream_t stream_ = nullptr;
  float* number_ = nullptr;
};

int run_rank(int rank, int socket) {
  try {
    Rank(rank, socket).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_calls, rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main() {
  int sockets[kRanks] = {};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  pid_t children[kRanks] = {};
  for (int rank = 0; rank < kRanks; ++rank) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    close(sockets[1 - rank]);
    // NCCL refuses two ranks on one device of one host.
    setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 1);
    std::_Exit(run_rank(rank, sockets[rank]));
  }
  for (const int socket : sockets) close(socket);
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
  }
  return worst;
}
