#include "deploy/launch/label_measurement.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "coordinator/run_ending.h"
#include "deploy/launch/agent.h"
#include "deploy/launch/child_output.h"
#include "deploy/launch/child_process.h"
#include "deploy/launch/interrupts.h"
#include "parallel/base/check.h"
#include "parallel/plan/label_bound.h"

namespace headroom {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);

// The worker's own refusal is "headroom-worker: [data] what: remedy".
[[noreturn]] void refuse(int exit_code, const std::string& last_words) {
  const std::string words = telling_line(last_words);
  const size_t begin = words.find('['), end = words.find("] ");
  if (exit_code >= 128 || begin == std::string::npos ||
      end == std::string::npos) {
    throw Error("labels",
                "the worker that reads labels " + describe_exit(exit_code) +
                    (words.empty() ? "" : "; its last words: " + words),
                "leave --data out to plan without labels", ExitCode::kResource);
  }
  throw Error(words.substr(begin + 1, end - begin - 1), words.substr(end + 2),
              "", static_cast<ExitCode>(exit_code));
}

std::string counts_in(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto counts =
      json.is_object() ? json.value("label_counts", std::string()) : "";
  const auto statistics = parse_label_statistics(counts);
  if (!statistics || !statistics->is_known()) {
    throw Error("labels", "the worker that reads labels said '" + line + "'",
                "build headroom and headroom-worker together",
                ExitCode::kResource);
  }
  return counts;
}

}  // namespace

std::string measure_labels(const RunConfig& config) {
  std::mutex mutex;
  std::string answer;  // the last line that is a document
  ChildOptions options;
  options.name = "label reader";
  options.command = {
      find_worker_program().string(), "label-statistics", config.data,
      "--threads", std::to_string(std::max<int64_t>(1, config.loader_threads))};
  if (config.single_cls) options.command.push_back("--single-cls");
  options.on_line = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    if (line.starts_with('{')) answer = line;
  };
  ChildProcess child(std::move(options));
  while (!child.wait(kTick)) {
    if (interrupts::count() == 0) continue;
    throw Error("labels", "interrupted while labels were read",
                "start it again", ExitCode::kInterrupted);
  }
  if (*child.exit_code() != 0) refuse(*child.exit_code(), child.last_words());
  const std::lock_guard lock(mutex);
  return counts_in(answer);
}

}  // namespace headroom
