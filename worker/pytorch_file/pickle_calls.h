// pickle_calls: the only functions that a pickle may "call", and what such a
// call comes to as data. Everything else is refused by its name.
//
//   containers   set, OrderedDict, ... : a container
//   tensors      torch._utils _rebuild_tensor_v2, ... : a kTensor, nothing read
//   plain values pathlib, torch.device, a NumPy scalar, a date: a kRecord
#pragma once

#include <string>

#include "worker/pytorch_file/pickle.h"

namespace headroom::pytorch_file {

// Turns `result`, fresh, into what `function(*arguments)` stands for. Returns
// "" or why it is refused: the function is not in the list, or its arguments
// are not what it takes.
std::string make_call(const std::string& function, const PickleValue& arguments,
                      PickleValue& result);

// Turns a persistent id, by which PyTorch names a storage, into that storage.
// Returns "" or why it is refused.
std::string make_storage(const PickleValue& id, PickleValue& result);

}  // namespace headroom::pytorch_file
