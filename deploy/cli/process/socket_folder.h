// SocketFolder: a new folder of mode 0700 in the temporary directory, for the
// Unix sockets of a run on one machine: those of the coordinator and of the
// ranks. Other users can neither connect to these sockets nor see them.
//
// The destructor removes the folder and its content. If the process was killed,
// this user's next run removes them, because the folder's lock is then free.
//
// Errors: Error (exit 2) if the folder cannot be made.
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

  // The coordinator's address in the folder:
  // "unix:/tmp/headroom-sockets-x1y2z3/control".
  std::string control_address() const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace headroom::cli
