// The log: the only part of the libraries that prints, always to stderr.
//
//   12:03:44 warning [gen 2 rank 3/8] loader: 2 images were skipped
//
// If the parent process reads this process's stderr, the log writes records
// instead: the parent then has the level of each line, and can tell log lines
// from other output.
//
// Results (tables, JSON) are not log lines; programs print them to stdout. Any
// thread may log; lines are never interleaved.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headroom::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Drops messages below `level`. The default is kInfo.
void set_level(Level level);

// The text in brackets before each message, for example "gen 2 rank 3/8"; an
// empty one (the default) is not shown.
void set_prefix(std::string prefix);

void write(Level level, std::string_view message);

// One line of the log.
struct Record {
  std::string time;  // "12:03:44"
  Level level = Level::kInfo;
  std::string message;
};

// "debug", "info", "warning" or "error".
const char* to_string(Level level);
// The line for a terminal or file: "12:03:44 warning message".
std::string to_text(const Record& record);

// The line that a child process writes to its stderr: the ASCII character
// "record separator", the number of the level, the time and the message.
std::string to_line(const Record& record);
// Returns no value for a line that the log did not write.
std::optional<Record> from_line(std::string_view line);

// Environment variable set for a child whose stderr this program reads.
inline constexpr const char* kRecordsVariable = "HEADROOM_LOG_RECORDS";
// From now on writes records if the parent asked for them through
// kRecordsVariable, and unsets that variable so that children do not inherit
// it. Call it before threads or children are started.
void follow_parent();
// Writes a child's record as if it were this process's own.
void pass_on(const Record& record);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warn(std::string_view message) { write(Level::kWarn, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace headroom::log
