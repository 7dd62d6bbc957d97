// TwoNodes: two machines with a network between them, made of name spaces. Each
// has its own network, host name and process numbers, so the programs on one
// machine share only files with those on the other.
//
//   node 0 (10.77.0.1) --veth-- switch --veth-- node 1 (10.77.0.2)
//
// The switch is a bridge in a name space of its own. If node 1's cable
// is cut there, node 0 receives nothing more, as between real machines.
//
// Everything is removed with the object, or when its process ends for any
// reason.
// Threads: one. Errors: failures of the running test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

class TwoNodes {
 public:
  // Returns "" if this machine allows it (root, iproute2, a kernel with veth),
  // else the reason.
  static std::string unavailable_error(const std::filesystem::path& folder);

  explicit TwoNodes(const std::filesystem::path& folder);

  // The command line that starts `command` on node 0 or 1.
  std::vector<std::string> on(int node, std::vector<std::string> command) const;
  static std::string address(int node);

  void cut();
  void heal();

  // Limits the bandwidth each way, in the kernel.
  void limit_to(int megabits_per_second);

  // Delays and drops packets between the nodes, both ways. Returns the method.
  std::string make_worse();
  // The number of packets that were dropped since make_worse().
  int64_t dropped() const;

 private:
  // The name space of an idle process.
  struct Space {
    std::unique_ptr<Program> holder;
    pid_t pid = -1;
  };
  Space make_space(const std::string& name) const;
  // Runs a shell command with the system's tools; returns its output.
  std::string run(const Space& space, const std::string& script) const;

  const std::filesystem::path folder_;
  Space switch_;
  Space nodes_[2];
};

}  // namespace headroom::testing
