// The log: the only place of the libraries that prints, always to stderr.
//
//   12:03:44 warning [gen 2 rank 3/8] loader: 2 images were skipped
//
// A process whose parent reads its stderr writes records instead, so that the
// parent knows the level of each line, and which lines the log did not write.
//
// Results (tables, JSON) are not log lines; programs print them to stdout. Any
// thread may log; lines are never interleaved.
#pragma once

#include <optional>
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

// One line of the log.
struct Record {
  std::string time;  // "12:03:44"
  Level level = Level::kInfo;
  std::string message;
};

// "debug", "info", "warning" or "error".
const char* to_string(Level level);
// The text that people read: "12:03:44 warning message".
std::string to_text(const Record& record);

// The line that a child writes to its stderr, which begins with the ASCII
// character "record separator" and the number of the level.
std::string to_line(const Record& record);
// Nothing for a line that the log did not write.
std::optional<Record> from_line(std::string_view line);

// The environment variable of a child whose stderr is read by this program.
inline constexpr const char* kRecordsVariable = "HEADROOM_LOG_RECORDS";
// Writes records from now on if the parent asked for them. Call it before there
// are threads or children: these do not inherit the variable.
void follow_parent();
// Writes a child's record as if it were this process's own.
void pass_on(const Record& record);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warn(std::string_view message) { write(Level::kWarn, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace headroom::log
