// Standard output whose reader may leave, as head(1) does.
#pragma once

namespace headroom {

// Ends the process as SIGPIPE ends other programs, without a word, where nobody
// reads its standard output any more.
void end_if_output_has_no_reader();

}  // namespace headroom
