// Pickle: Python's object files, read as data.
//
// A pickle is a program for a stack machine that can import and call any code.
// The machine in pickle.cpp executes only instructions that build values:
//   a class or function  becomes a kGlobal with its name
//   an object            becomes a kRecord: the class's name, the arguments,
//                        the state
//   a call               is refused, except to functions of a fixed list
// Values may be shared and may contain themselves, as in Python, so code that
// visits them must limit its depth and the number of visits.
//
// Pointers to values are valid as long as their Pickle exists.
// Memory: at most kMostValues values, plus their bytes from the file.
// Errors: Error that names the source and the byte.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::pytorch_file {

struct PickleValue {
  enum class Kind {
    // The members that have the content of each kind:
    kNone,
    kBool,     // integer
    kInteger,  // integer; a number of more than 64 bits is a kText
    kReal,     // real
    kText,     // text; also for Python's bytes
    kList,     // items
    kTuple,    // items
    kSet,      // items
    kDict,     // items: key, value, key, value
    kGlobal,   // text: "torch.nn.modules.conv Conv2d"
    kRecord,   // text: the class; items: arguments; state
    kStorage,  // text: its class; items: key, number of elements
    kTensor    // items: storage, offset, sizes, strides
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<const PickleValue*> items;
  const PickleValue* state = nullptr;

  bool is(Kind wanted) const { return kind == wanted; }
  // A dictionary's value for a text key; nullptr if the key is missing or this
  // is not a dictionary.
  const PickleValue* at(std::string_view key) const;
};

class Pickle {
 public:
  static constexpr size_t kMostValues = 4'000'000;

  // `source`: a name for error messages, "last.pt: data.pkl".
  static Pickle parse(std::string_view bytes, const std::string& source);

  const PickleValue& root() const { return *root_; }
  size_t num_values() const { return values_.size(); }

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace headroom::pytorch_file
