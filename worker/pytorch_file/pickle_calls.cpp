#include "worker/pytorch_file/pickle_calls.h"

#include <map>

namespace headroom::pytorch_file {
namespace {

using Kind = PickleValue::Kind;

enum class Call {
  kDict,
  kList,
  kTuple,
  kSet,
  kTensor,      // _rebuild_tensor(_v2)(storage, offset, sizes, strides, ...)
  kParameter,   // _rebuild_parameter(tensor, ...)
  kPlainValue,  // kept as a record
};

const std::map<std::string, Call>& known_calls() {
  static const std::map<std::string, Call> all = {
      {"collections OrderedDict", Call::kDict},
      {"collections defaultdict", Call::kDict},
      {"__builtin__ dict", Call::kDict},
      {"builtins dict", Call::kDict},
      {"__builtin__ list", Call::kList},
      {"builtins list", Call::kList},
      {"__builtin__ tuple", Call::kTuple},
      {"builtins tuple", Call::kTuple},
      {"torch Size", Call::kTuple},
      {"__builtin__ set", Call::kSet},
      {"builtins set", Call::kSet},
      {"__builtin__ frozenset", Call::kSet},
      {"builtins frozenset", Call::kSet},
      {"torch._utils _rebuild_tensor", Call::kTensor},
      {"torch._utils _rebuild_tensor_v2", Call::kTensor},
      {"torch._utils _rebuild_parameter", Call::kParameter},
      {"torch._utils _rebuild_parameter_with_state", Call::kParameter},
      {"pathlib Path", Call::kPlainValue},
      {"pathlib PosixPath", Call::kPlainValue},
      {"pathlib PurePosixPath", Call::kPlainValue},
      {"pathlib WindowsPath", Call::kPlainValue},
      {"pathlib PureWindowsPath", Call::kPlainValue},
      {"pathlib._local PosixPath", Call::kPlainValue},
      {"pathlib._local WindowsPath", Call::kPlainValue},
      {"torch device", Call::kPlainValue},
      {"datetime datetime", Call::kPlainValue},
      {"_codecs encode", Call::kPlainValue},
      {"numpy dtype", Call::kPlainValue},
      {"numpy.core.multiarray scalar", Call::kPlainValue},
      {"numpy._core.multiarray scalar", Call::kPlainValue},
      {"numpy.core.multiarray _reconstruct", Call::kPlainValue},
      {"numpy._core.multiarray _reconstruct", Call::kPlainValue},
  };
  return all;
}

bool are_integers(const PickleValue& tuple) {
  if (!tuple.is(Kind::kTuple) && !tuple.is(Kind::kList)) return false;
  for (const PickleValue* item : tuple.items) {
    if (!item->is(Kind::kInteger)) return false;
  }
  return true;
}

bool is_sequence(const PickleValue& value) {
  return value.is(Kind::kList) || value.is(Kind::kTuple) ||
         value.is(Kind::kSet);
}

// OrderedDict([(key, value), ...]), as Python 2 wrote it.
bool take_pairs(const PickleValue& pairs, PickleValue& result) {
  for (const PickleValue* pair : pairs.items) {
    if (!is_sequence(*pair) || pair->items.size() != 2) return false;
    result.items.insert(result.items.end(), pair->items.begin(),
                        pair->items.end());
  }
  return true;
}

bool make_tensor(const std::vector<const PickleValue*>& arguments,
                 PickleValue& result) {
  if (arguments.size() < 4 || !arguments[0]->is(Kind::kStorage) ||
      !arguments[1]->is(Kind::kInteger) || !are_integers(*arguments[2]) ||
      !are_integers(*arguments[3]) ||
      arguments[2]->items.size() != arguments[3]->items.size()) {
    return false;
  }
  result.kind = Kind::kTensor;
  result.items.assign(arguments.begin(), arguments.begin() + 4);
  return true;
}

}  // namespace

std::string make_call(const std::string& function, const PickleValue& arguments,
                      PickleValue& result) {
  const auto found = known_calls().find(function);
  if (found == known_calls().end()) {
    return "it calls " + function + ", which weights have no use for";
  }
  const std::string wrong = "its arguments for " + function + " are wrong";
  const std::vector<const PickleValue*>& items = arguments.items;
  switch (found->second) {
    case Call::kDict:
      result.kind = Kind::kDict;
      if (!items.empty() && is_sequence(*items[0])) {
        return take_pairs(*items[0], result) ? "" : wrong;
      }
      return "";  // defaultdict's factory is of no interest
    case Call::kList:
    case Call::kTuple:
    case Call::kSet:
      result.kind = found->second == Call::kList    ? Kind::kList
                    : found->second == Call::kTuple ? Kind::kTuple
                                                    : Kind::kSet;
      if (items.empty()) return "";
      if (items.size() != 1 || !is_sequence(*items[0])) return wrong;
      result.items = items[0]->items;
      return "";
    case Call::kTensor:
      return make_tensor(items, result) ? "" : wrong;
    case Call::kParameter:
      if (items.empty() || !items[0]->is(Kind::kTensor)) return wrong;
      result = *items[0];
      return "";
    case Call::kPlainValue:
      result.kind = Kind::kRecord;
      result.text = function;
      result.items = items;
      return "";
  }
  return wrong;
}

std::string make_storage(const PickleValue& id, PickleValue& result) {
  const std::vector<const PickleValue*>& items = id.items;
  if (!id.is(Kind::kTuple) || items.size() < 5 || !items[0]->is(Kind::kText) ||
      items[0]->text != "storage" || !items[1]->is(Kind::kGlobal) ||
      !items[2]->is(Kind::kText) || !items[4]->is(Kind::kInteger)) {
    return "it names a storage in a way that PyTorch does not";
  }
  result.kind = Kind::kStorage;
  result.text = items[1]->text;
  result.items = {items[2], items[4]};
  return "";
}

}  // namespace headroom::pytorch_file
