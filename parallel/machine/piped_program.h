// PipedProgram: a program that runs beside this process. It is connected by one
// pipe, which is both its standard input and its standard output.
//
// It is started without a shell, in a process group of its own, so that Ctrl-C
// reaches only this process. When this process ends, the pipe breaks, and the
// program ends when it next reads or writes. A thread reads its standard error
// all the time, and keeps one line of it or passes all lines on.
//
// Every wait is bounded: a program that takes too long gets SIGTERM, and
// SIGKILL 2 s later. Only a process that the kernel cannot end, for example
// because a network disk does not answer, is waited for longer.
//
// Use it from one thread. Errors: nothing is thrown; finish() returns them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace headroom {

class PipedProgram {
 public:
  // `words`: the program's name, which is searched for on PATH, and its
  // arguments. The program is killed if a read or write waits for `patience`.
  // `on_error_line` is called on a thread with each line of standard error;
  // then there is no first_error().
  PipedProgram(std::vector<std::string> words, std::chrono::seconds patience,
               std::function<void(std::string)> on_error_line = {});
  ~PipedProgram();  // ends the program if it still runs
  PipedProgram(const PipedProgram&) = delete;
  PipedProgram& operator=(const PipedProgram&) = delete;

  // Returns the number of bytes read, which is less than `size` at the end.
  size_t read(uint8_t* bytes, size_t size);
  // Returns false when the program accepts no more data.
  bool write(const uint8_t* bytes, size_t size);
  // Reads at most `size` bytes when some have come, and meanwhile writes
  // `unwritten`, whose spans shrink: so neither side blocks the other. Returns
  // 0 at the end, or when `may_wait`, asked every 50 ms, returns false.
  using Unwritten = std::deque<std::span<const std::byte>>;
  size_t exchange(uint8_t* bytes, size_t size, Unwritten& unwritten,
                  const std::function<bool()>& may_wait);
  // Closes the pipe and waits until the program ends, at most for `patience`.
  // Returns why the program failed, "" on success.
  std::string finish();

  // The number of lines on standard error that FFmpeg's log marks as errors
  // (option `-v level+error`). Other lines, such as a driver's warnings, do not
  // count. REQUIRES: finish().
  int64_t error_lines() const { return error_lines_; }
  // The first line that FFmpeg's log marks as an error; it names the cause of
  // the later errors. If no line is marked, the first line on standard error.
  // REQUIRES: finish().
  const std::string& first_error() const { return first_error_; }

 private:
  void start(std::vector<std::string>& words);
  void read_errors(int descriptor);
  void note_a_stall();
  bool ends_within(std::chrono::seconds time) const;

  const std::string name_;
  const std::chrono::seconds patience_;
  const std::function<void(std::string)> on_error_line_;
  std::string failure_;  // why the program could not be started, or was killed
  int pipe_ = -1;
  pid_t pid_ = -1;
  int status_ = 0;  // the program's exit status from waitpid()
  std::thread errors_;
  int64_t error_lines_ = 0;
  std::string first_error_;
};

}  // namespace headroom
