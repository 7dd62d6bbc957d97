// Interrupts: how often somebody asked this process to stop.
//
// SIGINT, SIGTERM and SIGHUP only count; the program's loop asks for the count.
// Signals within 300 ms are one request: timeout(1) and some launchers send
// theirs to the process and to its group. A signal that was ignored at start-up
// (nohup) stays ignored.
//
// Threads: install() once, from main; count() from any thread.
#pragma once

namespace headroom::interrupts {

void install();
int count();

}  // namespace headroom::interrupts
