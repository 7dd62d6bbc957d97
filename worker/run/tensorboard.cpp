#include "worker/run/tensorboard.h"

#include <unistd.h>

#include <array>

#include "parallel/base/check.h"
#include "proto/tensorboard_event.pb.h"

namespace headroom::run {
namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    }
    table[i] = value;
  }
  return table;
}

// Stored checksums are masked so that a checksum of data that holds checksums
// stays meaningful.
uint32_t mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

}  // namespace

uint32_t crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const unsigned char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ byte) & 0xff];
  }
  return ~crc;
}

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder,
                                     double wall_time)
    : path_(folder / ("events.out.tfevents." +
                      std::to_string(static_cast<int64_t>(wall_time)) +
                      ".headroom." + std::to_string(::getpid()))),
      file_(path_, std::ios::binary) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_file_version("brain.Event:2");
  write_record(event.SerializeAsString());
}

void TensorboardWriter::add(
    int64_t step, double wall_time,
    const std::vector<std::pair<std::string, double>>& scalars) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    auto* entry = event.mutable_summary()->add_value();
    entry->set_tag(tag);
    entry->set_simple_value(static_cast<float>(value));
  }
  write_record(event.SerializeAsString());
}

void TensorboardWriter::write_record(const std::string& payload) {
  const std::string length = little_endian<uint64_t>(payload.size());
  file_ << length << little_endian(mask(crc32c(length))) << payload
        << little_endian(mask(crc32c(payload)));
  file_.flush();
  if (!file_) {
    throw Error("run", "cannot write " + path_.string(),
                "free some space there", ExitCode::kResource);
  }
}

}  // namespace headroom::run
