// A libnccl.so.2 for tests: the functions of nccl.h that the project uses,
// implemented with memory that processes share. A cudaStream_t is a
// TestStreamHandle.
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/nccl_shim/communicator.h"
#include "tests/support/nccl_shim/element_sums.h"

struct ncclComm {
  std::shared_ptr<headroom::nccl_shim::Communicator> ranks;
};

namespace headroom::nccl_shim {
namespace {

const TestStreamHandle* handle_of(cudaStream_t stream) {
  return reinterpret_cast<const TestStreamHandle*>(stream);
}

// Calls `round` for each part of `bytes` that fits into a window.
template <typename Round>
bool in_parts(size_t bytes, const Round& round) {
  for (size_t begin = 0; begin < bytes; begin += Meeting::kWindowBytes) {
    if (!round(begin, std::min(bytes - begin, Meeting::kWindowBytes))) {
      return false;
    }
  }
  return true;
}

// Each rank writes its part into its own window; then `read` reads all windows.
template <typename Write, typename Read>
bool exchange(Communicator& ranks, const Write& write, const Read& read) {
  write(ranks.meeting().window(ranks.place().rank));
  if (!ranks.meet()) return false;
  read();
  return ranks.meet();
}

void sum_windows(Communicator& ranks, char* to, size_t bytes,
                 ncclDataType_t type, ncclRedOp_t operation) {
  std::memcpy(to, ranks.meeting().window(0), bytes);
  for (int rank = 1; rank < ranks.place().size; ++rank) {
    reduce_into(to, ranks.meeting().window(rank), bytes, type, operation);
  }
}

}  // namespace
}  // namespace headroom::nccl_shim

using headroom::TestStreamHandle;
using namespace headroom::nccl_shim;  // NOLINT: the functions below belong to C

extern "C" {

void headroom_nccl_shim_hooks(const headroom::TestDeviceHooks* hooks) {
  set_hooks(*hooks);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  unsigned char bytes[16] = {};
  std::FILE* const random = std::fopen("/dev/urandom", "rb");
  if (random == nullptr || std::fread(bytes, 1, 16, random) != 16) {
    if (random != nullptr) std::fclose(random);
    return ncclSystemError;
  }
  std::fclose(random);
  std::memset(id->internal, 0, sizeof(id->internal));
  char* to = id->internal;
  to += std::snprintf(to, 32, "headroom-nccl-");
  for (const unsigned char byte : bytes)
    to += std::snprintf(to, 3, "%02x", byte);
  return ncclSuccess;
}

// HEADROOM_NCCL_VERSION replaces the header's version.
ncclResult_t ncclGetVersion(int* version) {
  const char* const given = std::getenv("HEADROOM_NCCL_VERSION");
  *version = given != nullptr ? std::atoi(given) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

// All ids are compared: ranks that were given other ids do not join the group.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int size, int rank,
                                      int roots, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0 || roots < 1) {
    return ncclInvalidArgument;
  }
  Communicator::Place place;
  place.name = ids[0].internal;
  for (int root = 1; root < roots; ++root) {
    const std::string other = ids[root].internal;
    if (other.empty()) return ncclInvalidArgument;
    place.name += "-" + other.substr(other.size() - 4);
  }
  place.rank = rank;
  place.size = size;
  place.device = hooks().current_device();
  auto ranks = std::make_shared<Communicator>(place);
  *made = new ncclComm{ranks};
  const ncclResult_t result = ranks->connect();
  if (result != ncclInProgress) {
    delete *made;
    *made = nullptr;
  }
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t of) { return of->ranks->finalize(); }

ncclResult_t ncclCommDestroy(ncclComm_t of) {
  delete of;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t of) {
  of->ranks->abort();
  delete of;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t* state) {
  if (of == nullptr) return ncclInvalidArgument;
  *state = of->ranks->state();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t of, int* rank) {
  if (of->ranks->state() == ncclInProgress) return ncclInvalidArgument;
  *rank = of->ranks->place().rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t of, int* count) {
  if (of->ranks->state() == ncclInProgress) return ncclInvalidArgument;
  *count = of->ranks->place().size;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a "
                                      "network error",
                                      "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? texts[result] : "unknown";
}

const char* ncclGetLastError(ncclComm_t) { return last_error(); }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t of, cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  const TestStreamHandle* const on = handle_of(stream);
  const auto* const source = static_cast<const char*>(on->host_view(from));
  auto* const target = static_cast<char*>(on->host_view(to));
  return ranks.begin(
      {"AllReduce", static_cast<int64_t>(count), type, operation,
       [=, &ranks] {
         return in_parts(count * size_of(type), [&](size_t at, size_t bytes) {
           return exchange(
               ranks,
               [&](char* window) { std::memcpy(window, source + at, bytes); },
               [&] {
                 sum_windows(ranks, target + at, bytes, type, operation);
               });
         });
       }},
      on);
}

// Operations of a group run one after the other, in the stream's order.
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclAllGather(const void* from, void* to, size_t count,
                           ncclDataType_t type, ncclComm_t of,
                           cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  const TestStreamHandle* const on = handle_of(stream);
  const auto* const source = static_cast<const char*>(on->host_view(from));
  auto* const target = static_cast<char*>(on->host_view(to));
  const size_t part = count * size_of(type);
  return ranks.begin(
      {"AllGather", static_cast<int64_t>(count), type, 0,
       [=, &ranks] {
         return in_parts(part, [&](size_t at, size_t bytes) {
           return exchange(
               ranks,
               [&](char* window) { std::memcpy(window, source + at, bytes); },
               [&] {
                 for (int rank = 0; rank < ranks.place().size; ++rank) {
                   std::memcpy(target + static_cast<size_t>(rank) * part + at,
                               ranks.meeting().window(rank), bytes);
                 }
               });
         });
       }},
      on);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t of, cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  const TestStreamHandle* const on = handle_of(stream);
  const auto* const source = static_cast<const char*>(on->host_view(from));
  auto* const target = static_cast<char*>(on->host_view(to));
  const size_t part = count * size_of(type);
  return ranks.begin(
      {"ReduceScatter", static_cast<int64_t>(count), type, operation,
       [=, &ranks] {
         const int own = ranks.place().rank;
         for (int rank = 0; rank < ranks.place().size; ++rank) {
           const char* const theirs = source + static_cast<size_t>(rank) * part;
           const bool done = in_parts(part, [&](size_t at, size_t bytes) {
             return exchange(
                 ranks,
                 [&](char* window) { std::memcpy(window, theirs + at, bytes); },
                 [&] {
                   if (rank == own) {
                     sum_windows(ranks, target + at, bytes, type, operation);
                   }
                 });
           });
           if (!done) return false;
         }
         return true;
       }},
      on);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count,
                           ncclDataType_t type, int root, ncclComm_t of,
                           cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  const TestStreamHandle* const on = handle_of(stream);
  const auto* const source = static_cast<const char*>(on->host_view(from));
  auto* const target = static_cast<char*>(on->host_view(to));
  return ranks.begin(
      {"Broadcast", static_cast<int64_t>(count), type, root,
       [=, &ranks] {
         return in_parts(count * size_of(type), [&](size_t at, size_t bytes) {
           return exchange(
               ranks,
               [&](char* window) {
                 if (ranks.place().rank == root) {
                   std::memcpy(window, source + at, bytes);
                 }
               },
               [&] {
                 std::memcpy(target + at, ranks.meeting().window(root), bytes);
               });
         });
       }},
      on);
}

// Messages, only in communicators of two ranks: the sender writes its window,
// the receiver reads it.
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t of, cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  if (ranks.place().size != 2 || peer == ranks.place().rank) {
    return ncclInvalidUsage;
  }
  const TestStreamHandle* const on = handle_of(stream);
  const auto* const source = static_cast<const char*>(on->host_view(from));
  return ranks.begin(
      {"SendRecv", static_cast<int64_t>(count), type, 0,
       [=, &ranks] {
         return in_parts(count * size_of(type), [&](size_t at, size_t bytes) {
           return exchange(
               ranks,
               [&](char* window) { std::memcpy(window, source + at, bytes); },
               [] {});
         });
       }},
      on);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t of, cudaStream_t stream) {
  Communicator& ranks = *of->ranks;
  if (ranks.place().size != 2 || peer == ranks.place().rank) {
    return ncclInvalidUsage;
  }
  const TestStreamHandle* const on = handle_of(stream);
  auto* const target = static_cast<char*>(on->host_view(to));
  return ranks.begin(
      {"SendRecv", static_cast<int64_t>(count), type, 0,
       [=, &ranks] {
         return in_parts(count * size_of(type), [&](size_t at, size_t bytes) {
           return exchange(
               ranks, [](char*) {},
               [&] {
                 std::memcpy(target + at, ranks.meeting().window(peer), bytes);
               });
         });
       }},
      on);
}

}  // extern "C"
