// stop_signals: Ctrl-C and SIGTERM of a worker that nobody supervises.
//
// The first asks for an end at the next committed step, one that comes later
// than 0.3 s after it ends the process at once: timeout(1) sends its signal to
// the process and to its group, and means one.
//
// Threads: install() once, from main; requested() from any thread.
#pragma once

namespace headroom::stop_signals {

void install();
bool requested();

}  // namespace headroom::stop_signals
