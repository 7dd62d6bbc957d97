// LocalRun: a real coordinator on a loopback port with one registered agent.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/service/control_client.h"
#include "coordinator/service/server.h"
#include "worker/control/coordinator_client.h"

namespace headroom::coordinator {

// Polls for at most 10 s.
inline bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class LocalRun {
 public:
  explicit LocalRun(int workers, const std::string& run_directory = "/runs/exp")
      : server(Server::start(options(workers, run_directory))),
        agent(ControlClient::connect(server->address())) {
    NodeRegistration node;
    node.node_id = "n";
    node.hostname = "h";
    for (int k = 0; k < workers; ++k) {
      node.worker_ids.push_back("w" + std::to_string(k));
    }
    registered = agent->register_node(node);
  }

  static ServerOptions options(int workers, const std::string& run_directory) {
    ServerOptions options;
    options.config.data = "data.yaml";
    options.config.cfg = "yolov5n";
    options.expected_workers = workers;
    options.run_directory = run_directory;
    return options;
  }

  // `patience` is the time for which the worker looks for a coordinator that
  // has ended.
  std::unique_ptr<control::CoordinatorClient> worker(
      int k, std::chrono::milliseconds patience = control::kPatience) const {
    return control::CoordinatorClient::connect(
        server->address(), identity("w" + std::to_string(k)), "127.0.0.1",
        patience);
  }
  wire::MemberIdentity identity(const std::string& worker_id) const {
    return {"n", worker_id, agent->secret_of(worker_id)};
  }

  std::string state() const { return to_string(server->status().state); }

  std::unique_ptr<Server> server;
  std::unique_ptr<ControlClient> agent;
  wire::RegisterResponse registered;
};

}  // namespace headroom::coordinator
