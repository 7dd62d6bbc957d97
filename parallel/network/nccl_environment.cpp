#include "parallel/network/nccl_environment.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "parallel/base/text.h"
#include "parallel/network/network_interfaces.h"

namespace headroom {
namespace {

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* given) {
        static_cast<std::vector<std::string>*>(given)->emplace_back(
            info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

std::string library_with(const std::vector<std::string>& all,
                         std::string_view part) {
  const auto found = std::ranges::find_if(all, [&](const std::string& name) {
    return name.find(part) != std::string::npos;
  });
  return found == all.end() ? "" : *found;
}

// A plugin exports one table for each version of NCCL's interface; each table
// begins with the plugin's name.
std::string name_of_plugin(const std::string& file) {
  void* const plugin = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == nullptr) return "";
  constexpr int kNewest = 15, kOldest = 5;
  std::string name;
  for (int version = kNewest; version >= kOldest && name.empty(); --version) {
    const std::string table = cat("ncclNetPlugin_v", version);
    if (const auto* const text =
            static_cast<const char* const*>(dlsym(plugin, table.c_str()))) {
      name = *text;
    }
  }
  dlclose(plugin);
  return name;
}

}  // namespace

std::string socket_interface_fault(const std::string& value,
                                   const std::vector<std::string>& all) {
  std::string_view wanted = value;
  if (wanted.empty()) return "";
  const bool excludes = wanted.starts_with("^");
  if (excludes) wanted.remove_prefix(1);
  const bool is_exact = wanted.starts_with("=");
  if (is_exact) wanted.remove_prefix(1);
  const auto is_named = [&](const std::string& name) {
    std::string_view rest = wanted;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (is_exact ? name == one : name.starts_with(one)) return true;
    }
    return false;
  };
  const bool has_one = std::ranges::any_of(
      all, [&](const std::string& name) { return is_named(name) != excludes; });
  if (has_one) return "";
  return "NCCL_SOCKET_IFNAME=" + value + " " +
         (excludes ? "excludes all interfaces" : "names no interface") +
         " of this machine";
}

std::vector<std::string> interface_names(const std::filesystem::path& sys) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(sys / "class" / "net", error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string nccl_transport() {
  const std::vector<std::string> loaded = loaded_libraries();
  const std::string plugin = library_with(loaded, "libnccl-net");
  return transport_name(plugin.empty() ? "" : name_of_plugin(plugin),
                        !library_with(loaded, "libibverbs").empty(),
                        !rdma_devices().empty());
}

std::string transport_name(const std::string& plugin, bool has_verbs,
                           bool has_rdma_device) {
  if (!plugin.empty()) return plugin;
  return has_verbs && has_rdma_device ? "InfiniBand or RoCE" : "TCP sockets";
}

}  // namespace headroom
