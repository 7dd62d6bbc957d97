#include "parallel/base/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>

namespace headroom {

void end_if_output_has_no_reader() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) < 1 || (output.revents & POLLERR) == 0) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

}  // namespace headroom
