#include "parallel/cuda/nccl_advice.h"
#include "parallel/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace headroom::cuda {
namespace {

// Applies if the message contains all words, in upper or lower case.
struct Advice {
  std::array<const char*, 2> words;
  const char* remedy;
};

constexpr const char* kShm =
    "/dev/shm is too small, docker run gives 64 MiB: start the container with "
    "--shm-size=8g; on Kubernetes mount an emptyDir of medium Memory there; or "
    "set NCCL_SHM_DISABLE=1";
constexpr const char* kMemlock =
    "the limit on locked memory is too low for the network card: start the "
    "container with --ulimit memlock=-1, or raise memlock for the service that "
    "starts containers (containerd, slurmd)";
constexpr const char* kInterface =
    "set NCCL_SOCKET_IFNAME to an interface that reaches the other machines, "
    "as ip -brief address lists them";

constexpr std::array kAdvice = {
    Advice{{"/dev/shm", "no space"}, kShm},
    Advice{{"shared memory segment", "no space"}, kShm},
    Advice{{"shared memory segment", "cannot allocate"}, kShm},
    Advice{{"posix_fallocate", "no space"}, kShm},
    Advice{{"ibv_reg_mr", "cannot allocate memory"}, kMemlock},
    Advice{{"ibv_create", "cannot allocate memory"}, kMemlock},
    Advice{{"ibv_reg_dmabuf_mr", "cannot allocate memory"}, kMemlock},
    Advice{{"fi_mr_reg", "cannot allocate memory"}, kMemlock},
    Advice{{"memlock", ""}, kMemlock},
    Advice{{"no socket interface found", ""}, kInterface},
    Advice{{"duplicate gpu", ""},
           "start one process per device, or name other cards with --device"},
    Advice{{"too many open files", ""},
           "raise the limit on open files: ulimit -n 65536, or LimitNOFILE= of "
           "the service that starts it"},
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return text;
}

// "2.28.9". Versions before 2.9 had one digit less; they are not accepted.
std::string version_text(int version) {
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

std::string nccl_advice(const std::string& message) {
  const std::string said = lower(message);
  const auto found = std::ranges::find_if(kAdvice, [&](const Advice& advice) {
    return std::ranges::all_of(advice.words, [&](const char* words) {
      return said.find(words) != std::string::npos;
    });
  });
  return found == kAdvice.end() ? "" : found->remedy;
}

std::string nccl_version_refusal(int built_with, int loaded,
                                 const std::string& file) {
  const bool is_usable =
      loaded / 10000 == built_with / 10000 && loaded >= built_with;
  if (is_usable) return "";
  return "NCCL " + version_text(loaded) + " was loaded from " + file +
         ", and this program was built with " + version_text(built_with);
}

}  // namespace headroom::cuda
