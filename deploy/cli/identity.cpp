// What a command line says of who this process is.
#include "deploy/cli/commands.h"
#include "proto/channel_security.h"

namespace headroom::cli {

SecurityFiles take_identity(const CommandLine& line) {
  const SecurityFiles files{line.value_of("--certs", ""),
                            line.value_of("--token-file", "")};
  wire::set_channel_security(wire::read_channel_security(
      files.certs, files.token_file, wire::ChannelSide::kClient));
  return files;
}

}  // namespace headroom::cli
