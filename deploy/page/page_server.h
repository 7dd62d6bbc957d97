// PageServer: the page of a run, or of several, on an HTTP port of its own. It
// only reads: GET and HEAD, and no request changes anything. Where it is given
// PageOptions::stop, it also answers POST /api/stop.
//
//   GET /?token=T     sets a cookie and leads to /
//   GET /             the page
//   GET /api/runs, /api/run, /api/steps, /api/timeline    JSON
//   GET /events       server-sent events
//   GET /files        a picture of the run, by exact name
//   POST /api/stop    stops the run, where the page may
//
// Who may read: whoever knows the token, which is drawn for each server. The
// Host must be the address listened on, so that no other site's name leads
// here, and a request that another site's page makes is refused.
//
// At most 256 connections; one that moves nothing for 30 seconds is closed. All
// of it runs on threads of its own, and readers share their texts, so a reader
// that does not read costs neither memory nor training time.
//
// Errors: Error (exit 2) where the address cannot be listened on, or lies
// beyond loopback without certificates and a token (proto/channel_security.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "deploy/page/run_shelf.h"
#include "proto/channel_security.h"

namespace headroom::page {

struct PageOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0 takes a free one
  // The flag that names another address, for refusals.
  std::string flag = "--page";
  // Certificates of the server's side; HTTPS where there are some.
  wire::ChannelSecurity security;
  bool insecure_network = false;
  RunSource source;
  // Stops the live run; empty where the page may not. Called on the server's
  // thread.
  std::function<void()> stop;
  std::chrono::seconds idle_time{30};
  std::chrono::milliseconds sign_of_life{15'000};
};

class PageServer {
 public:
  explicit PageServer(PageOptions options);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // "http://127.0.0.1:40123/?token=...": what to open in a browser.
  std::string address() const;
  int port() const;
  const std::string& token() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace headroom::page
