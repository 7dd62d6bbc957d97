#include "tests/worker/pytorch_file/archive_maker.h"

#include "parallel/base/binary_record.h"

namespace headroom::pytorch_file {
namespace {

std::string little(uint64_t value, size_t width) {
  return number_bytes(value).substr(0, width);
}

std::string integers(const std::vector<int32_t>& values) {
  std::vector<std::string> items;
  for (const int32_t value : values) items.push_back(pickled::integer(value));
  return pickled::tuple(items);
}

}  // namespace

std::string make_archive(const std::vector<ArchiveEntry>& entries) {
  std::string file, directory;
  for (const ArchiveEntry& entry : entries) {
    const auto size = static_cast<int64_t>(entry.bytes.size());
    const auto or_else = [](int64_t claimed, int64_t real) {
      return static_cast<uint64_t>(claimed >= 0 ? claimed : real);
    };
    const auto offset = static_cast<int64_t>(file.size());
    // A CRC of zero means that it is not recorded.
    const std::string sizes =
        little(or_else(entry.claimed_stored_bytes, size), 4) +
        little(or_else(entry.claimed_bytes, size), 4) +
        little(entry.name.size(), 2) + little(0, 2);
    file += "PK\x03\x04" + little(0, 2) + little(entry.flags, 2) +
            little(entry.method, 2) + little(0, 4) + little(0, 4) + sizes +
            entry.name + entry.bytes;
    directory += "PK\x01\x02" + little(0, 4) + little(entry.flags, 2) +
                 little(entry.method, 2) + little(0, 4) + little(0, 4) + sizes +
                 std::string(10, '\0') +
                 little(or_else(entry.claimed_offset, offset), 4) + entry.name;
  }
  const auto directory_offset = file.size();
  return file + directory + "PK\x05\x06" + little(0, 4) +
         little(entries.size(), 2) + little(entries.size(), 2) +
         little(directory.size(), 4) + little(directory_offset, 4) +
         little(0, 2);
}

namespace pickled {

std::string text(const std::string& value) {
  return "X" + little(value.size(), 4) + value;
}
std::string integer(int32_t value) {
  return "J" + little(static_cast<uint32_t>(value), 4);
}
std::string tuple(const std::vector<std::string>& items) {
  std::string all = "(";
  for (const std::string& item : items) all += item;
  return all + "t";
}
std::string dict(const std::vector<std::string>& keys_and_values) {
  std::string all = "}(";
  for (const std::string& item : keys_and_values) all += item;
  return all + "u";
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string call(const std::string& function, const std::string& arguments) {
  return function + arguments + "R";
}
std::string object(const std::string& type, const std::string& state) {
  return type + ")\x81" + state + "b";
}
std::string tensor(const std::string& storage_type, const std::string& key,
                   int32_t storage_size, int32_t offset,
                   const std::vector<int32_t>& sizes,
                   const std::vector<int32_t>& strides) {
  const std::string storage =
      tuple({text("storage"), global("torch", storage_type), text(key),
             text("cpu"), integer(storage_size)}) +
      "Q";
  return call(
      global("torch._utils", "_rebuild_tensor_v2"),
      tuple({storage, integer(offset), integers(sizes), integers(strides),
             "\x89", call(global("collections", "OrderedDict"), ")")}));
}
std::string module(const std::string& type,
                   const std::vector<std::string>& parameters,
                   const std::vector<std::string>& children) {
  return object(global("models.yolo", type),
                dict({text("_parameters"), dict(parameters), text("_buffers"),
                      "}", text("_modules"), dict(children)}));
}
std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickled

}  // namespace headroom::pytorch_file
