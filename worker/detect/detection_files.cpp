#include "worker/detect/detection_files.h"

#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace headroom::detect {
namespace {

// RFC 4180: quoted where it holds a comma, a quote or a line's end.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string number(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

nlohmann::json image_id_of(const std::filesystem::path& image,
                           const CocoIds& ids) {
  const auto known = ids.images.find(image.string());
  if (known != ids.images.end()) return known->second;
  const std::string stem = image.stem().string();
  int64_t id = 0;
  const char* const end = stem.data() + stem.size();
  const auto [rest, error] = std::from_chars(stem.data(), end, id);
  if (error == std::errc() && rest == end) return id;
  return stem;
}

}  // namespace

std::string yolo_text(const ImageDetections& found, bool with_confidence) {
  std::string text;
  const auto width = static_cast<double>(found.width);
  const auto height = static_cast<double>(found.height);
  for (const metrics::Detection& d : found.detections) {
    text += std::to_string(d.class_index);
    for (const double value :
         {(d.box.x1 + d.box.x2) / 2 / width, (d.box.y1 + d.box.y2) / 2 / height,
          (d.box.x2 - d.box.x1) / width, (d.box.y2 - d.box.y1) / height}) {
      text += " " + number(value, 6);
    }
    if (with_confidence) text += " " + number(d.confidence, 6);
    text += "\n";
  }
  return text;
}

std::string csv_header() { return "image,class,name,confidence,x1,y1,x2,y2\n"; }

std::string csv_lines(const ImageDetections& found,
                      const std::vector<std::string>& class_names) {
  std::string text;
  for (const metrics::Detection& d : found.detections) {
    text += csv_field(found.image.string()) + "," +
            std::to_string(d.class_index) + "," +
            csv_field(class_names.at(static_cast<size_t>(d.class_index))) +
            "," + number(d.confidence, 5);
    for (const float value : {d.box.x1, d.box.y1, d.box.x2, d.box.y2}) {
      text += "," + number(value, 2);
    }
    text += "\n";
  }
  return text;
}

std::string coco_records(const ImageDetections& found, const CocoIds& ids) {
  const auto category_of = [&](int32_t c) {
    const auto place = static_cast<size_t>(c);
    return place < ids.categories.size() ? ids.categories[place]
                                         : int64_t{c} + 1;
  };
  const auto rounded = [](float value) {
    return static_cast<double>(static_cast<int64_t>(value * 1000 + 0.5F)) /
           1000;
  };
  const nlohmann::json id = image_id_of(found.image, ids);
  std::string text;
  for (const metrics::Detection& d : found.detections) {
    const nlohmann::ordered_json record = {
        {"image_id", id},
        {"category_id", category_of(d.class_index)},
        {"bbox",
         {rounded(d.box.x1), rounded(d.box.y1), rounded(d.box.x2 - d.box.x1),
          rounded(d.box.y2 - d.box.y1)}},
        {"score", d.confidence}};
    text +=
        (text.empty() ? "\n" : ",\n") +
        record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return text;
}

std::string coco_json(const std::vector<ImageDetections>& all,
                      const CocoIds& ids) {
  std::string text = "[";
  for (const ImageDetections& found : all) {
    const std::string records = coco_records(found, ids);
    if (!records.empty()) text += (text.size() == 1 ? "" : ",") + records;
  }
  return text + "\n]\n";
}

std::string counts_text(const ImageDetections& found,
                        const std::vector<std::string>& class_names) {
  std::map<int32_t, int64_t> counts;
  for (const metrics::Detection& d : found.detections) ++counts[d.class_index];
  std::string text;
  for (const auto& [index, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " +
            class_names.at(static_cast<size_t>(index));
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace headroom::detect
