#include "worker/checkpoint/background_writer.h"

#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"

namespace headroom::checkpoint {

void BackgroundWriter::start(std::shared_ptr<Job> job) {
  HEADROOM_CHECK(!is_busy(), "one job at a time");
  if (thread_.joinable()) thread_.join();
  job_ = std::move(job);
  error_ = nullptr;
  is_done_ = false;
  is_waited_for_ = false;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // the system cannot create a thread
    finish_here();
  }
}

void BackgroundWriter::run() {
  constexpr int kLowest = 19;
  // On Linux this sets the priority of this thread only. If it is refused, the
  // thread keeps its normal priority.
  ::setpriority(PRIO_PROCESS, 0, kLowest);
  activations::CountingAllocator::count_as_host_memory();
  while (!is_waited_for_) {
    if (!advance()) return;
  }
}

bool BackgroundWriter::advance() {
  try {
    if (job_->advance()) return true;
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_ = true;
  return false;
}

void BackgroundWriter::finish() {
  const LongWork writing;  // the process counts as alive on a slow disk
  is_waited_for_ = true;
  if (thread_.joinable()) thread_.join();
  finish_here();
  job_.reset();
}

void BackgroundWriter::finish_here() {
  const activations::CountingAllocator::HostMemory host;
  while (is_busy()) advance();
}

}  // namespace headroom::checkpoint
