// Memory of a layer that comes and goes under tensors that stay.
//
// A layer's flat buffer has a storage of its own; parameters are windows into
// it, and autograd keeps those windows. Freeing the tensors would not free the
// memory as long as anybody keeps one: so the storage object stays and only
// what it points to is released and allocated again (as PyTorch's FSDP does).
//
// Threads: as tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::zero {

// Nobody may touch a value of the layer until restore_memory().
// REQUIRES: a tensor that covers its storage.
void release_memory(const at::Tensor& flat);

// Uninitialised. Throws c10::OutOfMemoryError; nothing has changed then.
// REQUIRES: released.
void restore_memory(const at::Tensor& flat);

bool has_memory(const at::Tensor& flat);

}  // namespace headroom::zero
