#include "worker/data/labels/shared_index.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::labels {
namespace {

// The file: this header, the arrays of the data sets, each at a multiple of
// kAlignment, and the record of everything else.
struct Header {
  uint64_t record_at = 0, record_bytes = 0;
};
constexpr uint64_t kAlignment = 64;

// Writes and reads the small parts of a data set with the same statements.
template <typename Record, typename T>
void transfer(Record& record, T& value) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    record.value(value);
  } else {  // a string or a vector
    record.size(value);
    for (auto& element : value) transfer(record, element);
  }
}
template <typename Record>
void transfer(Record& record, DataFault& fault) {
  transfer(record, fault.kind);
  transfer(record, fault.where);
  transfer(record, fault.what);
  transfer(record, fault.fix);
  transfer(record, fault.costs_box);
}
template <typename Record>
void transfer(Record& record, DataReport& report) {
  transfer(record, report.split);
  transfer(record, report.table);
  transfer(record, report.row_form);
  for (int64_t* number :
       {&report.images, &report.background, &report.boxes, &report.objects,
        &report.crowds, &report.dropped, &report.left_out,
        &report.files_of_unknown_classes, &report.largest_class}) {
    transfer(record, *number);
  }
  transfer(record, report.has_class_zero);
  transfer(record, report.counts);
  record.size(report.faults);
  for (DataFault& fault : report.faults) transfer(record, fault);
  transfer(record, report.notes);
}

}  // namespace

class SharedIndex::Writer {
 public:
  explicit Writer(SharedFile& file) : file_(file) {}

  // Returns false if memory runs out.
  bool write(std::string key, std::vector<IndexedDataset>& sets) {
    transfer(record_, key);
    record_.size(sets);
    for (IndexedDataset& set : sets) {
      Dataset& dataset = set.dataset;
      if (!write_arrays(dataset)) return false;
      transfer(record_, dataset.class_names_);
      transfer(record_, dataset.num_polygons_);
      transfer(record_, dataset.digest_);
      transfer(record_, set.report);
    }
    const std::string& record = record_.bytes();
    const Header header{end_, record.size()};
    return file_.write(end_, record.data(), record.size()) &&
           file_.write(0, &header, sizeof header) && file_.seal();
  }

 private:
  bool write_arrays(const Dataset& dataset) {
    return write(dataset.path_text_) && write(dataset.path_offsets_) &&
           write(dataset.sizes_) && write(dataset.labels_) &&
           write(dataset.label_offsets_) && write(dataset.points_) &&
           write(dataset.point_ends_);
  }

  template <typename T>
  bool write(std::span<const T> array) {
    const uint64_t at = divided_up(end_, kAlignment) * kAlignment;
    record_.value(at);
    record_.value(static_cast<uint64_t>(array.size()));
    end_ = at + array.size_bytes();
    return file_.write(at, array.data(), array.size_bytes());
  }

  SharedFile& file_;
  RecordWriter record_;
  uint64_t end_ = sizeof(Header);
};

class SharedIndex::Reader {
 public:
  // `file` is a mapping of a whole file.
  Reader(std::shared_ptr<const std::byte> file, uint64_t bytes)
      : file_(std::move(file)), bytes_(bytes), record_(record()) {}

  // Returns nullopt if the file has something else than `key` describes.
  std::optional<std::vector<IndexedDataset>> read(const std::string& key) {
    std::string written;
    transfer(record_, written);
    if (written != key) return std::nullopt;
    std::vector<IndexedDataset> sets;
    record_.size(sets);
    for (IndexedDataset& set : sets) {
      Dataset& dataset = set.dataset;
      read_arrays(dataset);
      transfer(record_, dataset.class_names_);
      transfer(record_, dataset.num_polygons_);
      transfer(record_, dataset.digest_);
      transfer(record_, set.report);
      dataset.memory_ = file_;
    }
    return sets;
  }

 private:
  std::string_view record() const {
    Header header;
    HEADROOM_CHECK(bytes_ >= sizeof header, "a shared index without a header");
    std::memcpy(&header, file_.get(), sizeof header);
    check_place(header.record_at, header.record_bytes);
    return {reinterpret_cast<const char*>(file_.get()) + header.record_at,
            header.record_bytes};
  }

  void read_arrays(Dataset& dataset) {
    read(dataset.path_text_);
    read(dataset.path_offsets_);
    read(dataset.sizes_);
    read(dataset.labels_);
    read(dataset.label_offsets_);
    read(dataset.points_);
    read(dataset.point_ends_);
  }

  template <typename T>
  void read(std::span<const T>& array) {
    uint64_t at = 0, count = 0;
    record_.value(at);
    record_.value(count);
    HEADROOM_CHECK(at % kAlignment == 0 && count <= bytes_ / sizeof(T),
                   "a shared index with a damaged array");
    check_place(at, count * sizeof(T));
    array = {reinterpret_cast<const T*>(file_.get() + at), count};
  }

  void check_place(uint64_t at, uint64_t bytes) const {
    HEADROOM_CHECK(at <= bytes_ && bytes <= bytes_ - at,
                   "a shared index that ends too early");
  }

  const std::shared_ptr<const std::byte> file_;
  const uint64_t bytes_;
  RecordReader record_;
};

std::vector<IndexedDataset> SharedIndex::read(int descriptor,
                                              const std::string& key,
                                              const Read& read,
                                              std::string& problem) {
  if (descriptor < 0) return read();
  const auto failed = [&problem](const std::string& what) {
    problem = cat("this process keeps an index of its own: ", what, " (",
                  std::strerror(errno), ")");
  };
  const std::unique_ptr<SharedFile> file = SharedFile::open(descriptor);
  if (file == nullptr) {
    failed("the memory that the workers share cannot be opened");
    return read();
  }
  std::optional<SharedFile::Lock> lock;
  {
    const PeerWait waiting;
    lock.emplace(*file);
  }
  if (!file->is_sealed()) {
    std::vector<IndexedDataset> sets = read();
    const bool has_packs = std::ranges::any_of(
        sets, [](const auto& set) { return !set.dataset.packs_.empty(); });
    std::vector<IndexedDataset> none;
    file->resize(0);  // a process may have been killed while it wrote
    if (Writer(*file).write(has_packs ? "" : key, has_packs ? none : sets)) {
      if (has_packs) return sets;
    } else {
      failed("memory to share the index cannot be had");
      file->resize(0);
      file->seal();
      return sets;
    }
  }
  lock.reset();
  const uint64_t bytes = file->size();
  if (bytes == 0) return read();  // the first process had no memory for it
  const std::shared_ptr<const std::byte> mapped = file->map(0, bytes);
  if (mapped == nullptr) {
    failed(cat("the shared index of ",
               format_bytes(static_cast<int64_t>(bytes)), " cannot be mapped"));
    return read();
  }
  std::optional<std::vector<IndexedDataset>> sets =
      Reader(mapped, bytes).read(key);
  return sets ? std::move(*sets) : read();
}

}  // namespace headroom::labels
