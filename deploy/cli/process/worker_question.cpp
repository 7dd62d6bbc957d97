#include "deploy/cli/process/worker_question.h"

#include <chrono>
#include <mutex>

#include "coordinator/run/run_ending.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/process/child_output.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"

namespace headroom::cli {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);

// The worker's own refusal is "headroom-worker: [data] what: remedy".
[[noreturn]] void refuse(const WorkerQuestion& question, int exit_code,
                         const std::string& last_words) {
  const std::string words = telling_line(last_words);
  const size_t begin = words.find('['), end = words.find("] ");
  if (exit_code >= 128 || begin == std::string::npos ||
      end == std::string::npos) {
    throw Error("labels",
                "the worker that reads labels " +
                    coordinator::describe_exit(exit_code) +
                    (words.empty() ? "" : "; its last words: " + words),
                question.remedy, ExitCode::kResource);
  }
  throw Error(words.substr(begin + 1, end - begin - 1), words.substr(end + 2),
              "", static_cast<ExitCode>(exit_code));
}

}  // namespace

std::string ask_worker(const WorkerQuestion& question) {
  std::mutex mutex;
  std::string answer;
  ChildOptions options;
  options.name = question.name;
  options.command = {find_worker_program().string()};
  options.command.insert(options.command.end(), question.words.begin(),
                         question.words.end());
  options.on_line = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    if (line.starts_with('{')) answer = line;
  };
  ChildProcess child(std::move(options));
  while (!child.wait(kTick)) {
    if (interrupts::count() == 0) continue;
    throw Error("labels", "interrupted while " + question.doing,
                "start it again", ExitCode::kInterrupted);
  }
  if (*child.exit_code() != 0) {
    refuse(question, *child.exit_code(), child.last_words());
  }
  const std::lock_guard lock(mutex);
  return answer;
}

}  // namespace headroom::cli
