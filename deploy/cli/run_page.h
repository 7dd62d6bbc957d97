// Options that the page of a run and `headroom page` share.
#pragma once

#include <string>

#include "deploy/cli/annex.h"
#include "deploy/page/page_server.h"

namespace headroom::cli {

// Options for a page at the address `listen`, which was given with `flag`. They
// contain the files of --certs and --token-file only if the address is beyond
// loopback.
page::PageOptions page_options(const CommandLine& line,
                               const std::string& listen,
                               const std::string& flag);

}  // namespace headroom::cli
