#include "worker/run/tensorboard.h"

#include <unistd.h>

#include <array>
#include <optional>
#include <string_view>
#include <system_error>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "proto/tensorboard_event.pb.h"

namespace headroom::run {
namespace {

// TFRecord masks its checksums, because a checksum over data that contains its
// own checksum is weak.
uint32_t mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

struct PictureSize {
  int32_t width = 0, height = 0;
};

int32_t big_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (const unsigned char byte : bytes) value = value << 8 | byte;
  return static_cast<int32_t>(value);
}

// A JPEG segment is a marker, a length that includes itself, and content; a
// frame's content begins with precision, height and width.
std::optional<PictureSize> size_of_jpeg(std::string_view bytes) {
  size_t at = 2;
  while (at + 9 <= bytes.size() && bytes[at] == '\xff') {
    const auto marker = static_cast<unsigned char>(bytes[at + 1]);
    const bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 &&
                          marker != 0xc8 && marker != 0xcc;
    if (is_frame) {
      return PictureSize{.width = big_endian(bytes.substr(at + 7, 2)),
                         .height = big_endian(bytes.substr(at + 5, 2))};
    }
    at += 2 + static_cast<size_t>(big_endian(bytes.substr(at + 2, 2)));
  }
  return std::nullopt;
}

std::optional<PictureSize> size_of(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8")) return size_of_jpeg(bytes);
  if (bytes.starts_with("\x89PNG") && bytes.size() >= 24) {
    return PictureSize{.width = big_endian(bytes.substr(16, 4)),
                       .height = big_endian(bytes.substr(20, 4))};
  }
  return std::nullopt;
}

tensorboard::Event event_at(int64_t step, double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step);
  return event;
}

constexpr const char* kOurs = ".headroom.";

// The bytes of the complete records at the beginning of a file; 0 if there is
// none. Only the records' lengths are read.
uintmax_t complete_bytes(const std::filesystem::path& path) {
  constexpr uint64_t kHead = 12, kTail = 4;  // a length and checksums
  const RegularFile file(path, Links::kRefused);
  uint64_t end = 0;
  while (file.is_open()) {
    const auto head = file.read(end, kHead);
    if (!head || head->size() < kHead) break;
    const auto length = number_at<uint64_t>(*head, 0);
    const bool is_whole =
        number_at<uint32_t>(*head, 8) == mask(crc32c(head->substr(0, 8))) &&
        length <= file.size() && file.size() - length >= end + kHead + kTail;
    if (!is_whole) break;
    end += kHead + length + kTail;
  }
  return end;
}

// The newest file of Headroom's in `folder`; "" if there is none.
std::filesystem::path newest_file(const std::filesystem::path& folder) {
  std::filesystem::path newest;
  std::error_code error;
  for (const std::filesystem::path& file : entries_of(folder, error)) {
    const std::string name = file.filename().string();
    // The time in a name has ten digits until the year 2286.
    if (name.starts_with(run_files::kTensorboardPrefix) &&
        name.find(kOurs) != std::string::npos && complete_bytes(file) > 0 &&
        (newest.empty() || name > newest.filename().string())) {
      newest = file;
    }
  }
  return newest;
}

}  // namespace

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder,
                                     double wall_time)
    : path_(newest_file(folder)) {
  if (!path_.empty()) {
    size_ = complete_bytes(path_);
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path_, error);
    if (std::filesystem::file_size(path_, error) > size_) {
      std::filesystem::resize_file(path_, size_, error);
      // Readers use the file's time as the time of its newest record.
      std::filesystem::last_write_time(path_, time, error);
    }
    file_.open(path_, std::ios::binary | std::ios::app);
    return;
  }
  path_ = folder / cat(run_files::kTensorboardPrefix,
                       static_cast<int64_t>(wall_time), kOurs, ::getpid());
  file_.open(path_, std::ios::binary);
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_file_version("brain.Event:2");
  write_record(event.SerializeAsString());
}

void TensorboardWriter::add(
    int64_t step, double wall_time,
    const std::vector<std::pair<std::string, double>>& scalars) {
  tensorboard::Event event = event_at(step, wall_time);
  for (const auto& [tag, value] : scalars) {
    auto* entry = event.mutable_summary()->add_value();
    entry->set_tag(tag);
    entry->set_simple_value(static_cast<float>(value));
  }
  write_record(event.SerializeAsString());
}

void TensorboardWriter::add_picture(int64_t step, double wall_time,
                                    const std::string& tag,
                                    const std::string& bytes) {
  const std::optional<PictureSize> size = size_of(bytes);
  if (!size) return;
  tensorboard::Event event = event_at(step, wall_time);
  auto* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  auto* image = value->mutable_image();
  image->set_width(size->width);
  image->set_height(size->height);
  image->set_colorspace(3);
  image->set_encoded_image_string(bytes);
  write_record(event.SerializeAsString());
}

void TensorboardWriter::add_curve(int64_t step, double wall_time,
                                  const PrecisionRecall& curve) {
  const size_t num_thresholds = curve.precision.size();
  tensorboard::PrCurvePluginData plugin;
  plugin.set_num_thresholds(static_cast<uint32_t>(num_thresholds));
  tensorboard::Event event = event_at(step, wall_time);
  auto* value = event.mutable_summary()->add_value();
  value->set_tag(curve.tag);
  value->mutable_metadata()->set_display_name(curve.tag);
  auto* data = value->mutable_metadata()->mutable_plugin_data();
  data->set_plugin_name("pr_curves");
  data->set_content(plugin.SerializeAsString());
  auto* tensor = value->mutable_tensor();
  tensor->set_dtype(1);
  tensor->mutable_tensor_shape()->add_dim()->set_size(6);
  tensor->mutable_tensor_shape()->add_dim()->set_size(
      static_cast<int64_t>(num_thresholds));
  const std::vector<double> no_negatives(num_thresholds, 0.0);
  for (const std::vector<double>* figures :
       {&curve.true_positives, &curve.false_positives, &no_negatives,
        &curve.false_negatives, &curve.precision, &curve.recall}) {
    HEADROOM_CHECK(figures->size() == num_thresholds, curve.tag);
    for (const double figure : *figures) {
      tensor->add_float_val(static_cast<float>(figure));
    }
  }
  write_record(event.SerializeAsString());
}

void TensorboardWriter::write_record(const std::string& payload) {
  const std::string length = number_bytes<uint64_t>(payload.size());
  const std::string record = length + number_bytes(mask(crc32c(length))) +
                             payload + number_bytes(mask(crc32c(payload)));
  file_ << record << std::flush;
  if (!file_) {
    // Readers stop at an incomplete record, so the file continues after the
    // last complete one.
    std::error_code ignored;
    file_.close();
    std::filesystem::resize_file(path_, size_, ignored);
    file_.clear();
    file_.open(path_, std::ios::binary | std::ios::app);
    throw Error("run", "cannot write " + path_.string(),
                "free some space there", ExitCode::kResource);
  }
  size_ += record.size();
}

}  // namespace headroom::run
