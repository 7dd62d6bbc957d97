// stop_signals: Ctrl-C, SIGTERM and SIGHUP of a worker without supervisor.
//
// The first signal asks for an end at the next committed step. A signal that
// arrives more than 0.3 s later ends the process at once. The interval exists
// because timeout(1) sends its signal to the process and to its group, which is
// meant as one request.
//
// Threads: call install() once, from main; requested() from any thread.
#pragma once

namespace headroom::stop_signals {

void install();
bool requested();

}  // namespace headroom::stop_signals
