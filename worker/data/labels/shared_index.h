// SharedIndex: data sets that one process of a machine reads and the others use
// in place, in memory that all of them share (parallel/machine/shared_file.h).
// So the files are listed and examined once, and the paths and boxes are in
// memory once.
//
// The process that takes the file's lock first reads the data sets and writes
// them. The others wait for the lock. If a process is killed while it reads, or
// cannot read the data, the next one reads. A process that starts later finds
// what the first one wrote, also if files have changed since.
//
// Images in packs are not shared, because each process needs the packs' own
// indexes, which it reads from one file a pack.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/machine/shared_file.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {

class SharedIndex {
 public:
  using Read = std::function<std::vector<IndexedDataset>()>;

  // Returns the result of `read`, called by this process or by another one, as
  // far as training needs it: IndexedDataset::undecodable may be missing.
  // `descriptor` is SharedFiles::index; with -1 this process reads for itself.
  // `key` describes what is read: if the file has something else, this process
  // reads for itself. `problem` is set if memory cannot be shared. An exception
  // of `read` is passed on.
  static std::vector<IndexedDataset> read(int descriptor,
                                          const std::string& key,
                                          const Read& read,
                                          std::string& problem);

 private:
  class Writer;
  class Reader;
};

}  // namespace headroom::labels
