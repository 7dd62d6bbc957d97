// PipedProgram: a program that runs beside this process. It is connected by one
// pipe, which is both its standard input and its standard output.
//
// It is started without a shell, in a process group of its own, so that Ctrl-C
// reaches only this process. When this process ends, the pipe breaks, and the
// program ends too. A thread reads its standard error all the time.
//
// Use it from one thread. Errors: nothing is thrown; finish() returns them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace headroom::video {

class PipedProgram {
 public:
  // `words`: the program's name, which is searched for on PATH, and its
  // arguments. The program is ended if a read, a write or its end takes longer
  // than `patience`.
  PipedProgram(std::vector<std::string> words, std::chrono::seconds patience);
  ~PipedProgram();  // ends the program if it still runs
  PipedProgram(const PipedProgram&) = delete;
  PipedProgram& operator=(const PipedProgram&) = delete;

  // Returns the number of bytes read, which is less than `size` at the end.
  size_t read(uint8_t* bytes, size_t size);
  // Returns false when the program accepts no more data.
  bool write(const uint8_t* bytes, size_t size);
  // Closes the pipe and waits until the program ends. Returns why the program
  // failed, "" on success.
  std::string finish();

  // The number of lines that the program wrote to its standard error, and the
  // first line, which names the cause of the others. REQUIRES: finish().
  int64_t error_lines() const { return error_lines_; }
  const std::string& first_error() const { return first_error_; }

 private:
  void start(std::vector<std::string>& words);
  void read_errors();
  void end_if_it_stalls();
  void end_stalled();

  const std::string name_;
  const std::chrono::seconds patience_;
  std::string failure_;  // why the program could not be started, or was killed
  int pipe_ = -1;
  FILE* error_stream_ = nullptr;
  pid_t pid_ = -1;
  int status_ = 0;  // the program's exit status from waitpid()
  std::thread errors_;
  int64_t error_lines_ = 0;
  std::string first_error_;
};

}  // namespace headroom::video
