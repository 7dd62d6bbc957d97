#include "worker/run/tensorboard.h"

#include <unistd.h>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "parallel/base/run_files.h"
#include "proto/tensorboard_event.pb.h"

namespace headroom::run {
namespace {

// Stored checksums are masked so that a checksum of data that holds checksums
// stays meaningful.
uint32_t mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder,
                                     double wall_time)
    : path_(folder / (run_files::kTensorboardPrefix +
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
  const std::string length = number_bytes<uint64_t>(payload.size());
  file_ << length << number_bytes(mask(crc32c(length))) << payload
        << number_bytes(mask(crc32c(payload)));
  file_.flush();
  if (!file_) {
    throw Error("run", "cannot write " + path_.string(),
                "free some space there", ExitCode::kResource);
  }
}

}  // namespace headroom::run
