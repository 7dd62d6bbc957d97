// The log: the only place of the libraries that prints, always to stderr.
//
//   12:03:44 warn [gen 2 rank 3/8] loader: 2 images were skipped
//
// Results (tables, JSON) are not log lines; programs print them to stdout. Any
// thread may log; lines are never interleaved.
#pragma once

#include <string>
#include <string_view>

namespace headroom::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Drops lines below `level`, which is kInfo until this is called.
void set_level(Level level);

// The text in brackets before each message, for example "gen 2 rank 3/8"; an
// empty one (the default) is not shown.
void set_prefix(std::string prefix);

void write(Level level, std::string_view message);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warn(std::string_view message) { write(Level::kWarn, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace headroom::log
