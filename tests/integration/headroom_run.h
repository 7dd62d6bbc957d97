// Runs the real programs in a folder of their own, as a user would, and reads
// the files that they leave.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headroom::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal if a signal killed it
  std::string out;
  std::string err;
  double seconds = 0;
};

// Starts a program and hands out its pid; join() waits for its end.
class Program {
 public:
  // `command[0]` is a path, or a name looked up in PATH. Output goes to files
  // in `folder`, which is the working directory too. A flag of headroom that
  // occurs twice (a test may override a flag of train_shapes()) is passed once,
  // with its last values.
  Program(std::vector<std::string> command, std::filesystem::path folder);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  ProgramResult join();
  pid_t pid() const { return pid_; }

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  double started_ = 0;
};

ProgramResult run_program(const std::vector<std::string>& command,
                          const std::filesystem::path& folder);

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more);

// Splits a command line at its spaces.
std::vector<std::string> split_words(const std::string& line);

// build/bin/NAME of the build under test.
std::string program(const std::string& name);

// build/bin/headroom, and its arguments from one line such as
// "train --img 96".
std::vector<std::string> headroom_command(const std::string& line);

// A new folder under the build's tests, named after the running test; removed
// when the test has passed.
std::filesystem::path fresh_folder();

// A small drawn data set, made once per build; returns its data.yaml.
std::string shapes_data();

// The data set of shapes_data() with polygons as labels: a diamond in each box.
std::string outlined_shapes_data();

// `headroom train` on shapes_data(): yolov5n at 96 px, one thread per process.
// `more` sets processes, precision and length.
std::vector<std::string> train_shapes(const std::string& batch,
                                      const std::vector<std::string>& more);

using Json = nlohmann::json;
std::string text_of(const std::filesystem::path& file);
Json read_json(const std::filesystem::path& file);
std::vector<Json> read_lines(const std::filesystem::path& file);

// The descendants of `pid`, without `pid` itself, whose command line contains
// `text`.
std::vector<pid_t> descendants(pid_t pid, const std::string& text);

// The TCP ports on which those descendants of `pid` listen whose command line
// contains `text`.
std::vector<int> listening_ports(pid_t pid, const std::string& text = "");

// A TCP port of this machine that is free at the moment of the call.
int free_port();

// Waits until `file` has at least `count` lines, or the time is over.
bool wait_for_lines(const std::filesystem::path& file, size_t count,
                    double seconds);

}  // namespace headroom::testing
