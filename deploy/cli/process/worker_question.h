// What a launcher wants to know of files that only the worker reads: a child of
// its own, which answers with one line of JSON on standard output.
//
// Errors: Error (the worker's own, exit 2 or 4; exit 5 if it fails otherwise,
// 130 if somebody interrupts).
#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

struct WorkerQuestion {
  std::string name;                // "label reader"
  std::vector<std::string> words;  // of headroom-worker
  std::string doing;   // "labels were read", when somebody interrupts
  std::string remedy;  // where the child fails for no reason of its own
};

// The last line that is a document; "" if there is none.
std::string ask_worker(const WorkerQuestion& question);

}  // namespace headroom::cli
