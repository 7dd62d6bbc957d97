// What the page of a run and `headroom page` share.
#pragma once

#include <string>

#include "deploy/cli/annex.h"
#include "deploy/page/page_server.h"

namespace headroom::cli {

// The options of a page that listens at `listen`. Beyond loopback they have
// what
// --certs, --token-file and --insecure-network ask for.
page::PageOptions page_options(const CommandLine& line,
                               const std::string& listen,
                               const std::string& flag);

}  // namespace headroom::cli
