#include "parallel/devices/device_code.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"

namespace headroom::devices {

DeviceCode parse_architectures(const std::string& architectures) {
  DeviceCode code;
  std::istringstream words(architectures);
  for (std::string word; std::getline(words, word, ',');) {
    int capability = 0;
    const char* const last = word.data() + word.size();
    const auto [end, error] = std::from_chars(word.data(), last, capability);
    const std::string kind(end, last);
    if (error != std::errc() || capability < 10 ||
        (!kind.empty() && kind != "-real" && kind != "-virtual")) {
      throw Error("device", "'" + word + "' is no architecture of CUDA",
                  "write it as 90, 90-real or 90-virtual");
    }
    if (kind != "-virtual") code.machine_code.push_back(capability);
    if (kind != "-real") code.ptx.push_back(capability);
  }
  std::ranges::sort(code.machine_code);
  std::ranges::sort(code.ptx);
  return code;
}

bool runs_on(const DeviceCode& code, int compute_capability) {
  return std::ranges::any_of(code.machine_code,
                             [&](int built) {
                               return built / 10 == compute_capability / 10 &&
                                      built <= compute_capability;
                             }) ||
         std::ranges::any_of(
             code.ptx, [&](int built) { return built <= compute_capability; });
}

std::string card_error(const DeviceCode& code, const std::string& card,
                       int compute_capability) {
  if (code == DeviceCode() || runs_on(code, compute_capability)) return "";
  return card + " has compute capability " +
         capability_text(compute_capability) +
         ", but libheadroom_cuda.so has machine code for " +
         joined(code.machine_code, ", ", capability_text) +
         (code.ptx.empty()
              ? ""
              : " and PTX for " + capability_text(code.ptx.front()) +
                    " and later");
}

}  // namespace headroom::devices
