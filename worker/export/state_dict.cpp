#include "worker/export/state_dict.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/text.h"
#include "worker/export/archive_mark.h"

namespace headroom::exporter {

void write_state_dict(const std::filesystem::path& path,
                      const model::NamedTensors& state) {
  c10::Dict<std::string, at::Tensor> entries;
  for (const model::NamedTensor& entry : state) {
    // A copy, because a view would be written with all of its storage.
    entries.insert(entry.name, entry.tensor->detach().cpu().clone(
                                   at::MemoryFormat::Contiguous));
  }
  std::string pickle;
  // As torch::pickle_save(), but without tags for TorchScript's types, which
  // weights_only refuses.
  torch::jit::Pickler pickler(
      [&pickle](const char* bytes, size_t count) {
        pickle.append(bytes, count);
      },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(entries);
  pickler.stop();

  AtomicFile file(path);
  std::exception_ptr failure;
  {
    // The destructor of the writer calls this function, too, so it must not
    // throw.
    caffe2::serialize::PyTorchStreamWriter writer(
        [&](const void* bytes, size_t count) {
          try {
            if (!failure) file.write(bytes, count);
          } catch (...) {
            failure = std::current_exception();
          }
          return count;
        });
    writer.writeRecord(kArchiveMark, "", 0);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    const std::vector<at::Tensor>& tensors = pickler.tensorData();
    for (size_t i = 0; i < tensors.size(); ++i) {
      writer.writeRecord(cat("data/", i), tensors[i].const_data_ptr(),
                         tensors[i].nbytes());
    }
    writer.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

}  // namespace headroom::exporter
