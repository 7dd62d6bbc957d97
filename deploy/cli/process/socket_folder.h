// SocketFolder: where the processes of a run on one machine meet: a new folder
// of mode 0700 in the temporary directory, for the coordinator's Unix socket
// and those of the ranks. Other users can neither connect to a socket in it nor
// see that there is one.
//
// The folder and what lies in it are removed with the object; a killed process
// leaves them, and the next run of this user removes them (its lock is free).
//
// Errors: Error (exit 2) where the folder cannot be made.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::cli {

class SocketFolder {
 public:
  SocketFolder();
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  // The coordinator's address there:
  // "unix:/tmp/headroom-sockets-x1y2z3/control".
  std::string control_address() const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace headroom::cli
