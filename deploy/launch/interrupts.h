// Interrupts: how often somebody asked this process to stop.
//
// SIGINT, SIGTERM and SIGHUP only count; the program's loop asks for the count.
// A signal that was ignored at start-up (nohup) stays ignored.
//
// Threads: install() once, from main; count() from any thread.
#pragma once

namespace headroom::interrupts {

void install();
int count();

}  // namespace headroom::interrupts
