// PageServer: serves the page of one or several runs on its own HTTP port. It
// answers GET and HEAD, which change nothing, and POST /api/stop if
// PageOptions::stop is set.
//
//   GET /             the page, which says nothing about a run. Its script
//                     takes the token from the address (?token=T or #token=T),
//                     keeps it for the browser's tab, and sends it as the
//                     header X-Headroom-Token of every other request
//   GET /api/run, /api/plan, /api/steps, /api/timeline    JSON about a run
//   GET /events       server-sent events: the runs, and which of them changed
//   GET /files        a picture of the run, by exact name
//   POST /api/stop    stops the run, if PageOptions::stop is set
//
// All but the page needs the token, which is random for each server. The Host
// header must be the address that the server listens on, so that another site's
// name cannot lead here, and requests from another site's page are refused.
//
// At most 512 connections are open. Of those that have not shown the token at
// most 128 are kept: the oldest is closed for the newest (strangers.h). So at
// least 256 connections are left to readers, who can use up all of them.
// A connection without traffic for 30 seconds is closed. The server runs on its
// own threads and readers share texts, so a slow reader costs neither memory
// nor training time.
//
// Errors: Error (exit 2) if the address cannot be used, or if it is beyond
// loopback without certificates and a token (proto/channel_security.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "deploy/page/run_shelf.h"
#include "proto/channel_security.h"

namespace headroom::page {

struct PageOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0 takes any free port
  // The flag that gives another address, for error messages.
  std::string flag = "--page";
  // The server's certificates; with certificates it serves HTTPS.
  wire::ChannelSecurity security;
  bool insecure_network = false;
  RunSource source;
  // Stops the live run; empty if the page may not stop it. Called on the
  // server's thread.
  std::function<void()> stop;
  std::chrono::seconds idle_time{30};
  // The time in which a connection without the token must have sent the head of
  // its request. A longer time serves slower networks; a shorter one ends slow
  // strangers sooner.
  std::chrono::milliseconds head_time{10'000};
  std::chrono::milliseconds sign_of_life{15'000};
};

class PageServer {
 public:
  explicit PageServer(PageOptions options);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // The address to open in a browser: "http://127.0.0.1:40123/?token=...".
  std::string address() const;
  int port() const;
  const std::string& token() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace headroom::page
