// What a command line says of who this process is.
#include "deploy/launch/commands.h"
#include "proto/channel_security.h"

namespace headroom {

SecurityFiles take_identity(const CommandLine& line) {
  const SecurityFiles files{line.value_of("--certs", ""),
                            line.value_of("--token-file", "")};
  set_channel_security(read_channel_security(files.certs, files.token_file,
                                             ChannelSide::kClient));
  return files;
}

}  // namespace headroom
