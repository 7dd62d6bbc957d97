// The three kinds of failure, and what to use for each.
//
//   programmer error     HEADROOM_CHECK: aborts the operation with file:line
//   environment, request Error: what went wrong, where, and what to do
//   ordinary refusal     a returned value with a reason
//
// An Error is caught in one place per program and printed as one line:
//   [tag] what: remedy
// The program exits with the exit code of the Error (README, "Exit codes").
#pragma once

#include <stdexcept>
#include <string>

namespace headroom {

enum class ExitCode : int {
  kDone = 0,
  kRequest = 2,       // the request is wrong
  kNoPlan = 3,        // no plan fits
  kData = 4,          // the data set is unusable
  kResource = 5,      // stopped at a committed step; resumable
  kInterrupted = 130  // Ctrl-C; resumable
};

class Error : public std::runtime_error {
 public:
  // If two numbers disagree, `what_happened` contains both; `remedy` says what
  // the user can do. Neither ends with a full stop.
  Error(std::string tag, std::string what_happened, std::string remedy,
        ExitCode exit_code = ExitCode::kRequest);

  const std::string& tag() const { return tag_; }
  const std::string& text() const { return text_; }
  const std::string& remedy() const { return remedy_; }
  ExitCode exit_code() const { return exit_code_; }

 private:
  std::string tag_;
  std::string text_;
  std::string remedy_;
  ExitCode exit_code_;
};

// A peer was lost or does not answer: the communicator cannot be used any more.
// Only the generation loop catches it.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& what_happened);
};

// Thrown by HEADROOM_CHECK; never caught to continue.
class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

}  // namespace headroom

// HEADROOM_CHECK(rank < size, cat("rank ", rank));
#define HEADROOM_CHECK(condition, message)                               \
  do {                                                                   \
    if (!(condition))                                                    \
      ::headroom::fail_check(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
