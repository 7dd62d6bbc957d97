// How a command line proves this process's identity to the coordinator.
#include "deploy/cli/commands.h"
#include "proto/channel_security.h"

namespace headroom::cli {

SecurityFiles take_identity(const CommandLine& line,
                            const std::string& address) {
  const SecurityFiles files{line.value_of("--certs"),
                            line.value_of("--token-file"),
                            line.has("--insecure-network")};
  const wire::ChannelSecurity security = wire::read_channel_security(
      files.certs, files.token_file, wire::ChannelSide::kClient);
  wire::require_protected(address, security, files.insecure_network);
  wire::set_channel_security(security);
  return files;
}

}  // namespace headroom::cli
