#include "parallel/network/network_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom {
namespace {

// Returns the speed of a physical or bonded interface. Returns 0 for other
// interfaces, such as bridges and tunnels of containers, whose reported speeds
// are meaningless, and for a reported -1 (speed not fixed).
int64_t speed_of(const std::string& name, const std::filesystem::path& sys) {
  const std::filesystem::path folder = sys / "class/net" / name;
  std::error_code error;
  if (!std::filesystem::exists(folder / "device", error) &&
      !std::filesystem::exists(folder / "bonding", error)) {
    return 0;
  }
  int64_t megabits = 0;
  std::ifstream(folder / "speed") >> megabits;
  return std::max<int64_t>(0, megabits);
}

std::string speed_text(int64_t megabits_per_second) {
  const bool is_whole = megabits_per_second % 1000 == 0;
  return (is_whole
              ? std::to_string(megabits_per_second / 1000)
              : fixed_text(static_cast<double>(megabits_per_second) / 1e3, 1)) +
         " Gbit/s";
}

}  // namespace

std::vector<NetworkInterface> network_interfaces(
    const std::filesystem::path& sys) {
  std::vector<NetworkInterface> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list,
                                                               &freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET ||
        (i->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    char text[INET_ADDRSTRLEN] = "";
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    all.push_back({.name = i->ifa_name,
                   .address = text,
                   .is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0,
                   .megabits_per_second = speed_of(i->ifa_name, sys)});
  }
  return all;
}

std::vector<std::string> rdma_devices(const std::filesystem::path& sys) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(sys / "class/infiniband", error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string interfaces_text(const std::vector<NetworkInterface>& interfaces) {
  std::vector<std::string> words;
  for (const NetworkInterface& one : interfaces) {
    words.push_back(one.name + " (" + one.address +
                    (one.megabits_per_second > 0
                         ? ", " + speed_text(one.megabits_per_second)
                         : "") +
                    ")");
  }
  return words.empty() ? "none" : joined(words, ", ");
}

NetworkInterface interface_named(const std::string& name,
                                 const std::vector<NetworkInterface>& all) {
  const auto found = std::ranges::find(all, name, &NetworkInterface::name);
  if (found != all.end()) return *found;
  throw Error("network",
              "--interface " + name +
                  ": no interface of this machine that is up with an IPv4 "
                  "address has this name",
              "there are: " + interfaces_text(all));
}

std::string interface_with(const std::string& address,
                           const std::vector<NetworkInterface>& all) {
  const auto found =
      std::ranges::find(all, address, &NetworkInterface::address);
  return found == all.end() ? "" : found->name;
}

std::vector<std::string> unused_network(
    const std::string& address, const std::vector<NetworkInterface>& all,
    const std::vector<std::string>& rdma, bool speaks_nccl) {
  std::vector<std::string> sentences;
  const auto used = std::ranges::find(all, address, &NetworkInterface::address);
  if (used == all.end() || used->is_loopback) return sentences;
  const auto fastest =
      std::ranges::max_element(all, {}, &NetworkInterface::megabits_per_second);
  if (used->megabits_per_second > 0 &&
      fastest->megabits_per_second > used->megabits_per_second) {
    sentences.push_back("tensors go over " + interfaces_text({*used}) +
                        ", but " + interfaces_text({*fastest}) +
                        " is faster: give --interface " + fastest->name +
                        " on every machine, if it joins them");
  }
  if (speaks_nccl && !rdma.empty()) {
    sentences.push_back(
        "this machine has " + joined(rdma, ", ") +
        " for InfiniBand or EFA; NCCL speaks TCP unless it finds libibverbs "
        "(InfiniBand) or the aws-ofi-nccl plugin (EFA): see what "
        "NCCL_DEBUG=INFO says");
  }
  return sentences;
}

}  // namespace headroom
