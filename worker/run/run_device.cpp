#include "worker/run/run_device.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "parallel/base/check.h"
#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/layout.h"
#include "worker/kernels/cpu/kernel_registration.h"
#include "worker/run/run_context.h"

namespace headroom::run {
namespace {

void set_arithmetic(const configs::RunConfig& config) {
  at::Context& context = at::globalContext();
  // LibTorch's defaults differ: TF32 is on in cuDNN and off in cuBLAS.
  context.setAllowTF32CuDNN(config.tf32);
  context.setAllowTF32CuBLAS(config.tf32);
  // Algorithms come from cuDNN's heuristics, not from timing: they are the same
  // in every process, and no trial needs workspaces.
  context.setBenchmarkCuDNN(false);
  if (!config.deterministic) return;
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Do not fill new tensors: all memory is written before it is read.
  context.setDeterministicFillUninitializedMemory(false);
}

// CUDA's own error, "no kernel image is available", appears only at the first
// kernel, and names the compute capability of neither the card nor the kernels.
void require_code(const devices::DeviceInfo& device) {
  const std::string why =
      devices::card_error(device.code, device.name, device.compute_capability);
  if (why.empty()) return;
  throw Error("device", why,
              "use another card, or --device cpu, or build for it with "
              "CMAKE_CUDA_ARCHITECTURES");
}

// Creates the context: a process gets it with its first call that uses the card
// itself.
void make_context(const devices::ComputeDevice& device,
                  const devices::DeviceInfo& info) {
  try {
    // Without setDevice(), CUDA would also create a context on the first card.
    c10::impl::getDeviceGuardImpl(device.device().type())
        ->setDevice(device.device());
    device.api()->free_bytes(info.index);
  } catch (const c10::AcceleratorError& error) {
    const std::optional<std::string> words = error_words(error);
    if (!words) throw;  // the card's memory is full
    throw CardUnusable({.kind = CardFault::Kind::kFailed,
                        .card = card_of(info),
                        .words = *words});
  }
}

void require_same_card(const devices::DeviceApi& api,
                       const AssignedCard& card) {
  const int count = api.device_count();
  const std::string why = vanished_card_error(
      card, count, card.index < count ? api.describe(card.index).uuid : "");
  if (why.empty()) return;
  throw Error("device", why,
              "see why it went (nvidia-smi, dmesg | grep Xid), and start the "
              "run again");
}

constexpr size_t kNumbers = 8;  // numbers in a DeviceMemoryLine

devices::DeviceApi& api_of(const devices::ComputeDevice& device) {
  return *device.api();
}

int index_of(const devices::ComputeDevice& device) {
  return device.device().index();
}

std::array<int64_t, kNumbers> numbers_of(const DeviceMemoryLine& line) {
  const memory::DeviceFootprint& footprint = line.footprint;
  return {footprint.context,   footprint.communication,
          footprint.libraries, footprint.is_measured ? 1 : 0,
          line.workspace,      line.tensors,
          line.segments,       line.room};
}

}  // namespace

std::string vanished_card_error(const AssignedCard& card, int count,
                                const std::string& found_uuid) {
  // CUDA and NVML name a part of a card (MIG) differently.
  const bool is_comparable =
      card.uuid.starts_with("GPU-") && !found_uuid.empty();
  if (card.index < count && (!is_comparable || found_uuid == card.uuid)) {
    return "";
  }
  return cat(
      "card ", card.index, card.uuid.empty() ? "" : " (" + card.uuid + ")",
      " was there when its agent registered, and now the driver shows ",
      counted(count, "card"),
      found_uuid.empty() ? "" : ", with " + found_uuid + " in its place");
}

ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks, const AssignedCard& card,
                           CardRecord record) {
  // config.device is not "auto" any more: the coordinator, or a standalone run,
  // has chosen a device.
  if (!computes_on_cards(config.device)) return {};
  std::vector<int> cards = parse_device_list(config.device);
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  const auto refuse = [&](const std::string& why) {
    return Error("device", "--device " + config.device + ": " + why,
                 "use --device cpu");
  };
  if (plugin.api == nullptr) throw refuse(plugin.reason);
  const int count = plugin.api->device_count();
  if (count == 0 && !record.was_listed) {
    throw refuse("there is no device, or no driver for one");
  }
  if (cards.empty()) {
    cards.resize(static_cast<size_t>(std::max(1, count)));
    std::iota(cards.begin(), cards.end(), 0);
  }
  int index = card.index >= 0 ? card.index
                              : card_of_rank(cards, local_rank, local_ranks,
                                             config.share_devices);
  if (record.was_listed) {
    // CUDA and NVML name a part of a card (MIG) differently.
    if (record.uuid.empty() && card.uuid.starts_with("GPU-")) {
      record.uuid = card.uuid;
    }
  } else if (card.index >= 0) {
    require_same_card(*plugin.api, card);
  }
  if (index >= count && !record.was_listed) {
    throw refuse(cat("there is no device ", index, "; there are ", count,
                     ", counted from 0"));
  }
  index = usable_card(*plugin.api, index, record);
  const devices::DeviceInfo info = plugin.api->describe(index);
  require_code(info);
  kernels::set_device_kernels(plugin.api->device_type(),
                              &plugin.api->kernels());
  set_arithmetic(config);
  const devices::ComputeDevice chosen(*plugin.api, index);
  const std::optional<devices::DeviceUse> before = plugin.api->use_of(index);
  make_context(chosen, info);
  return {chosen,
          memory::footprint_of_context(before, plugin.api->use_of(index)),
          card_of(info)};
}

DeviceMemorySample::DeviceMemorySample(const devices::ComputeDevice& device)
    : device_(device),
      use_(api_of(device).use_of(index_of(device))),
      segments_(api_of(device).memory(index_of(device)).reserved_bytes()) {}

std::optional<int64_t> DeviceMemorySample::taken_since() const {
  const DeviceMemorySample now(device_);
  return memory::bytes_taken(use_, now.use_, now.segments_ - segments_);
}

std::vector<DeviceMemoryLine> gather_device_memory(
    collectives::Communicator& world, const DeviceMemoryLine& line) {
  std::vector<int64_t> all(kNumbers * static_cast<size_t>(world.size()), 0);
  std::ranges::copy(
      numbers_of(line),
      all.begin() + static_cast<std::ptrdiff_t>(kNumbers) * world.rank());
  world.all_reduce(
      at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kLong),
      collectives::ReduceOp::kMax);
  std::vector<DeviceMemoryLine> ranks;
  for (size_t i = 0; i < all.size(); i += kNumbers) {
    ranks.push_back({{all[i], all[i + 1], all[i + 2], all[i + 3] != 0},
                     all[i + 4],
                     all[i + 5],
                     all[i + 6],
                     all[i + 7]});
  }
  return ranks;
}

bool any_lacks_room(const std::vector<DeviceMemoryLine>& ranks) {
  return std::ranges::any_of(ranks, [](const DeviceMemoryLine& line) {
    return line.needed() > line.room;
  });
}

int fullest_rank(const std::vector<DeviceMemoryLine>& ranks) {
  const auto fullest = std::ranges::max_element(
      ranks, {},
      [](const DeviceMemoryLine& line) { return line.needed() - line.room; });
  return static_cast<int>(fullest - ranks.begin());
}

memory::StepEvent device_memory_event(
    const std::vector<DeviceMemoryLine>& ranks) {
  const DeviceMemoryLine& fullest =
      ranks[static_cast<size_t>(fullest_rank(ranks))];
  predict::SegmentEstimate segments;
  segments.tensor_bytes = fullest.tensors;
  segments.segment_bytes = fullest.segments;
  std::string text = "needs up to " + format_bytes(fullest.needed()) +
                     " of the " + format_bytes(fullest.room) +
                     " that it may take of its device: " +
                     memory::describe(segments, fullest.footprint);
  if (fullest.workspace > 0) {
    text += "; a convolution's workspace has taken up to " +
            format_bytes(fullest.workspace) + " of them";
  }
  if (fullest.needed() > fullest.room) {
    text += "; a step that does not fit is tried again, leaner";
  }
  const nlohmann::ordered_json detail = {{"ranks", device_memory_json(ranks)}};
  return {EventKind::kDeviceMemory, text, detail.dump()};
}

nlohmann::ordered_json device_memory_json(
    const std::vector<DeviceMemoryLine>& ranks) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const DeviceMemoryLine& line = ranks[rank];
    array.push_back({{"rank", rank},
                     {"context_bytes", line.footprint.context},
                     {"context_is_measured", line.footprint.is_measured},
                     {"communication_bytes", line.footprint.communication},
                     {"libraries_bytes", line.footprint.libraries},
                     {"workspace_bytes", line.workspace},
                     {"tensor_bytes", line.tensors},
                     {"segment_bytes", line.segments},
                     {"needed_bytes", line.needed()},
                     {"room_bytes", line.room}});
  }
  return array;
}

DeviceBudget::DeviceBudget(const RunContext& run,
                           memory::DeviceFootprint& footprint)
    : run_(run), footprint_(footprint) {
  if (!run_.device.is_cpu()) {
    before_steps_.emplace(run_.device);
    find_segments();
    if (run_.assignment.world_size == 1) {
      memory::require_room(run_.rank, segments_, footprint_, room());
    }
  }
  set_limit();
}

void DeviceBudget::count_connections() {
  if (!before_steps_) return;
  footprint_.communication += before_steps_->taken_since().value_or(0);
  before_steps_.emplace(run_.device);
  set_limit();
}

bool DeviceBudget::count_first_step() {
  if (!before_steps_) return false;
  footprint_.libraries += before_steps_->taken_since().value_or(0);
  before_steps_.reset();
  find_segments();
  set_limit();
  return true;
}

DeviceMemoryLine DeviceBudget::line() const {
  return {footprint_, convolution_workspaces().largest_bytes(),
          segments_.planned.tensor_bytes, segments_.planned.segment_bytes,
          room().bytes};
}

memory::DeviceRoom DeviceBudget::room() const {
  devices::DeviceApi& api = api_of(run_.device);
  const int index = index_of(run_.device);
  return memory::device_room(
      run_.config.memory_limit, api.describe(index).total_bytes,
      api.use_of(index),
      footprint_.total() + api.memory(index).reserved_bytes());
}

void DeviceBudget::find_segments() {
  const predict::MemoryRequest& request = run_.memory;
  segments_ = memory::step_segments(
      request, plan::coordinates_of(request.plan.layout, run_.rank));
}

void DeviceBudget::set_limit() {
  if (run_.config.memory_limit <= 0) return;
  run_.device.memory().set_limit(
      std::max<int64_t>(1, run_.config.memory_limit - footprint_.total()));
}

}  // namespace headroom::run
