// SharedFile: a file in memory without a name (memfd) that a process shares
// with the children to which it passes the descriptor. Other users cannot open
// it, and its memory is free again when the last of these processes has ended,
// even if all were killed.
//
// Processes write with write() and read a mapping that cannot be written. So a
// shortage of memory is an error and not a signal, and a stray pointer in one
// process damages nothing of the others.
//
// Errors: functions that return bool return false and set errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headroom {

class SharedFile {
 public:
  // An empty file; nullptr if the system refuses it (errno).
  static std::unique_ptr<SharedFile> make(const char* name);
  // The file that the parent process has passed as `descriptor`; nullptr if it
  // cannot be opened (errno). It is opened again, because a lock belongs to one
  // opening.
  static std::unique_ptr<SharedFile> open(int descriptor);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int descriptor() const { return descriptor_; }
  uint64_t size() const;
  // Changes the size; new bytes are 0 and take no memory before they are
  // written.
  bool resize(uint64_t bytes);
  // Takes the memory of the first bytes now.
  bool allocate(uint64_t bytes);
  bool write(uint64_t at, const void* bytes, uint64_t num_bytes);

  // From now on no process can change the size, so that no byte of a mapping
  // can vanish. The first process calls it when the file is complete.
  bool seal();
  bool is_sealed() const;

  // Frees the memory of all content; it is 0 then. Also allowed when sealed.
  bool clear();

  // Registers this object as a user of the content, until its end or the end of
  // the process. Call both functions under the lock.
  bool begin_use();
  bool has_other_users() const;

  // Maps `bytes` bytes; nullptr if that fails (errno). `at` is a multiple of
  // the page size. Keeps the memory, also after this object's end.
  std::shared_ptr<std::byte> map(uint64_t at, uint64_t bytes,
                                 bool is_writable = false) const;

  // While it exists, no other process, or other opening of the file, has a
  // Lock. Waits for it. The lock of a killed process is released.
  class Lock {
   public:
    explicit Lock(const SharedFile& file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const SharedFile& file_;
  };

 private:
  explicit SharedFile(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

// What an agent shares among its workers on a machine. Descriptors are -1 if
// there is no such file.
struct SharedFiles {
  int index = -1;       // the index of the data sets
  int images = -1;      // decoded images
  int num_workers = 1;  // workers that share them
};

}  // namespace headroom
