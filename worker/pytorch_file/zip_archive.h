// ZipArchive: reads the archives that torch.save writes, without unpacking.
//
// PyTorch stores its entries uncompressed, so an entry is a range of the file
// and never larger than the file. Compressed entries could be larger, and are
// refused. Names that lead out of the folder are refused too, although no entry
// is written to disk.
//
// The format: PKWARE's APPNOTE, with its 64-bit fields.
//
// Errors: Error that names the file, the entry and its fault.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace headroom::pytorch_file {

class ZipArchive {
 public:
  struct Entry {
    uint64_t header_offset = 0;  // offset of the entry's local header
    uint64_t bytes = 0;
    uint32_t crc = 0;  // CRC-32; 0 if not recorded
  };

  explicit ZipArchive(const std::filesystem::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }
  // Returns nullptr if there is no such entry.
  const Entry* find(const std::string& name) const;

  // Reads a whole entry and checks its checksum. REQUIRES: has(name).
  std::string read(const std::string& name);

  uint64_t file_bytes() const { return file_bytes_; }

 private:
  std::string bytes_at(uint64_t offset, uint64_t count);
  void read_directory(uint64_t offset, uint64_t bytes, uint64_t num_entries);
  void check_overlaps() const;
  uint64_t data_offset(const std::string& name, const Entry& entry);
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path path_;
  std::ifstream file_;
  uint64_t file_bytes_ = 0;
  std::map<std::string, Entry> entries_;
};

}  // namespace headroom::pytorch_file
