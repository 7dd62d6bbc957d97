#include "parallel/collectives/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

namespace headroom::collectives {

int64_t host_identity() {
  // Of this boot of this kernel.
  std::string identity;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), identity);
  struct stat name_space = {};
  if (stat("/proc/self/ns/pid", &name_space) == 0) {
    identity += " " + std::to_string(name_space.st_ino);
  }
  identity += " " + std::to_string(geteuid());
  return static_cast<int64_t>(std::hash<std::string>{}(identity));
}

}  // namespace headroom::collectives
