#include "worker/pytorch_file/pickle.h"

#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::pytorch_file {

using Kind = PickleValue::Kind;

const PickleValue* PickleValue::at(std::string_view key) const {
  if (!is(Kind::kDict)) return nullptr;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->is(Kind::kText) && items[i]->text == key) return items[i + 1];
  }
  return nullptr;
}

namespace {

// The only functions that a pickle may call, by the kind of their result: a
// container, a kTensor (its data is not read), or a kRecord for plain values.
// Calls of other functions are refused with the function's name.
enum class Call {
  kDict,
  kList,
  kTuple,
  kSet,
  kTensor,      // _rebuild_tensor(_v2)(storage, offset, sizes, strides, ...)
  kParameter,   // _rebuild_parameter(tensor, ...)
  kPlainValue,  // becomes a record
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

// Reads OrderedDict([(key, value), ...]), as Python 2 wrote it.
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

// Sets the empty `result` to the value of `function(*arguments)`. Returns "",
// or the reason if the function is not allowed or its arguments are wrong.
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
      return "";  // defaultdict's factory is ignored
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

// Sets `result` to the storage that PyTorch's persistent id `id` identifies.
// Returns "", or why the id is refused.
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

}  // namespace

// The stack machine: runs the file's instructions in order.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  Pickle run() {
    while (step()) {
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("weights", cat(source_, ": byte ", instruction_, ": ", what),
                "nothing of it was executed; where you trust its source, save "
                "its state dict with PyTorch and give that, or .safetensors");
  }

  // --- bytes of the file
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("the file ends in the middle");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  uint64_t take_unsigned(int width) {
    return number_of_bytes(take(static_cast<uint64_t>(width)));
  }
  std::string take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("the file ends in the middle");
    std::string line(take(end - at_));
    ++at_;
    return line;
  }
  // Two's complement, least significant byte first.
  void push_long(std::string_view raw) {
    PickleValue& value = make(Kind::kInteger);
    if (raw.size() > 8) {
      value.kind = Kind::kText;
      value.text = raw;
    } else {
      uint64_t bits = !raw.empty() && (raw.back() & 0x80) != 0 ? ~0ull : 0;
      for (size_t i = raw.size(); i-- > 0;) {
        bits = bits << 8 | static_cast<unsigned char>(raw[i]);
      }
      value.integer = static_cast<int64_t>(bits);
    }
    push(&value);
  }

  // --- values
  PickleValue& make(Kind kind) {
    if (result_.values_.size() >= Pickle::kMostValues) {
      refuse(cat("it has more than ", Pickle::kMostValues,
                 " values, more than any checkpoint"));
    }
    PickleValue& value = result_.values_.emplace_back();
    value.kind = kind;
    return value;
  }
  void push(PickleValue* value) { stack_.push_back(value); }
  void push_text(std::string_view text) {
    PickleValue& value = make(Kind::kText);
    value.text = text;
    push(&value);
  }
  void push_number(Kind kind, int64_t number) {
    PickleValue& value = make(kind);
    value.integer = number;
    push(&value);
  }
  PickleValue* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) {
      refuse("an instruction finds no value");
    }
    PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    PickleValue* const value = pop();
    push(value);
    return *value;
  }
  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty()) refuse("an instruction finds no mark");
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<const PickleValue*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_sequence(Kind kind, std::vector<const PickleValue*> items) {
    PickleValue& value = make(kind);
    value.items = std::move(items);
    push(&value);
  }
  void push_tuple_of(int count) {
    std::vector<const PickleValue*> items(static_cast<size_t>(count));
    for (size_t i = items.size(); i-- > 0;) items[i] = pop();
    push_sequence(Kind::kTuple, std::move(items));
  }
  void extend_top(const std::vector<const PickleValue*>& items) {
    PickleValue& target = top();
    target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void remember(uint64_t index) { memo_[index] = &top(); }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("it refers to a value that is not there");
    push(found->second);
  }

  // Appends to the list, set or dictionary on top of the stack.
  void append(const std::vector<const PickleValue*>& items) {
    // An object of a list-like class is a record of its constructor's
    // arguments; items that are appended to the object are ignored.
    if (top().is(Kind::kRecord)) return;
    if (!top().is(Kind::kList) && !top().is(Kind::kSet)) {
      refuse("it appends to what is no list");
    }
    extend_top(items);
  }
  void set_items(const std::vector<const PickleValue*>& items) {
    if (top().is(Kind::kRecord)) return;
    if (!top().is(Kind::kDict) || items.size() % 2 != 0) {
      refuse("it sets items of what is no dictionary");
    }
    extend_top(items);
  }

  // --- classes, objects, calls
  void push_global(const std::string& module, const std::string& name) {
    PickleValue& value = make(Kind::kGlobal);
    value.text = module + " " + name;
    push(&value);
  }
  void push_stack_global() {
    const PickleValue* const name = pop();
    const PickleValue* const module = pop();
    if (!name->is(Kind::kText) || !module->is(Kind::kText)) {
      refuse("it names a class by something that is no text");
    }
    push_global(module->text, name->text);
  }
  void new_object(const PickleValue& arguments) {
    const PickleValue* const type = pop();
    if (!type->is(Kind::kGlobal)) refuse("it makes an object of no class");
    PickleValue& value = make(Kind::kRecord);
    value.text = type->text;
    value.items = arguments.items;
    count_copied(value.items.size());
    push(&value);
  }
  void call() {
    const PickleValue* const arguments = pop();
    const PickleValue* const function = pop();
    if (!function->is(Kind::kGlobal) || !arguments->is(Kind::kTuple)) {
      refuse("it calls what is no function");
    }
    PickleValue& value = make(Kind::kNone);
    const std::string why = make_call(function->text, *arguments, value);
    if (!why.empty()) refuse(why);
    count_copied(value.items.size());
    push(&value);
  }
  // A few bytes of the file can copy a long list, so the total is limited.
  void count_copied(size_t num_items) {
    copied_ += num_items;
    if (copied_ > Pickle::kMostValues) refuse("it copies lists without end");
  }
  void build() {
    const PickleValue* const state = pop();
    PickleValue& target = top();
    // The attributes of containers are ignored.
    if (target.is(Kind::kRecord)) target.state = state;
  }
  void push_storage() {
    const PickleValue* const id = pop();
    PickleValue& value = make(Kind::kNone);
    const std::string why = make_storage(*id, value);
    if (!why.empty()) refuse(why);
    push(&value);
  }
  void push_real() {
    const std::string_view raw = take(8);  // big-endian
    uint64_t bits = 0;
    for (const char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
    PickleValue& value = make(Kind::kReal);
    std::memcpy(&value.real, &bits, sizeof bits);
    push(&value);
  }

  // Runs one instruction; returns false after the last one. Python's
  // pickletools.py lists the instructions' letters. Instructions that
  // torch.save never writes are refused.
  bool step() {
    instruction_ = at_;
    const char code = take(1)[0];
    switch (static_cast<unsigned char>(code)) {
      case 0x80:  // PROTO
        if (take_unsigned(1) > 5) refuse("a pickle of an unknown version");
        return true;
      case 0x95:  // FRAME
        take_unsigned(8);
        return true;
      case '.':  // STOP
        result_.root_ = pop();
        return false;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      // Plain values.
      case 'N':
        push(&make(Kind::kNone));
        return true;
      case 0x88:
        push_number(Kind::kBool, 1);
        return true;
      case 0x89:
        push_number(Kind::kBool, 0);
        return true;
      case 'J':
        push_number(Kind::kInteger, static_cast<int32_t>(take_unsigned(4)));
        return true;
      case 'K':
        push_number(Kind::kInteger, static_cast<int64_t>(take_unsigned(1)));
        return true;
      case 'M':
        push_number(Kind::kInteger, static_cast<int64_t>(take_unsigned(2)));
        return true;
      case 0x8a:
        push_long(take(take_unsigned(1)));
        return true;
      case 0x8b:
        push_long(take(take_unsigned(4)));
        return true;
      case 'G':
        push_real();
        return true;
      case 'U':
      case 'C':
      case 0x8c:  // short strings and bytes
        push_text(take(take_unsigned(1)));
        return true;
      case 'T':
      case 'X':
      case 'B':
        push_text(take(take_unsigned(4)));
        return true;
      case 0x8d:
      case 0x8e:
      case 0x96:
        push_text(take(take_unsigned(8)));
        return true;
      // Containers.
      case ')':
        push_sequence(Kind::kTuple, {});
        return true;
      case ']':
        push_sequence(Kind::kList, {});
        return true;
      case '}':
        push_sequence(Kind::kDict, {});
        return true;
      case 0x8f:
        push_sequence(Kind::kSet, {});
        return true;
      case 0x91:
        push_sequence(Kind::kSet, pop_to_mark());
        return true;
      case 't':
        push_sequence(Kind::kTuple, pop_to_mark());
        return true;
      case 'l':
        push_sequence(Kind::kList, pop_to_mark());
        return true;
      case 'd':
        push_sequence(Kind::kDict, pop_to_mark());
        if (top().items.size() % 2 != 0) refuse("a key without a value");
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple_of(static_cast<unsigned char>(code) - 0x84);
        return true;
      case 'a':
        append({pop()});
        return true;
      case 'e':
      case 0x90:
        append(pop_to_mark());
        return true;
      case 's': {
        const PickleValue* const value = pop();
        const PickleValue* const key = pop();
        set_items({key, value});
        return true;
      }
      case 'u':
        set_items(pop_to_mark());
        return true;
      // The memo.
      case 'q':
        remember(take_unsigned(1));
        return true;
      case 'r':
        remember(take_unsigned(4));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'h':
        recall(take_unsigned(1));
        return true;
      case 'j':
        recall(take_unsigned(4));
        return true;
      // Names of classes and functions, and instructions that use them.
      case 'c': {
        const std::string module = take_line();
        push_global(module, take_line());
        return true;
      }
      case 0x93:
        push_stack_global();
        return true;
      case 0x81:
        new_object(*pop());
        return true;
      case 0x92: {
        pop();  // keyword arguments
        new_object(*pop());
        return true;
      }
      case 'R':
        call();
        return true;
      case 'b':
        build();
        return true;
      case 'Q':
        push_storage();
        return true;
      default:
        refuse(cat("instruction ", static_cast<unsigned char>(code),
                   " is not one that torch.save writes"));
    }
  }

  std::string_view bytes_;
  const std::string& source_;
  size_t at_ = 0;
  size_t instruction_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  size_t copied_ = 0;
  Pickle result_;
};

Pickle Pickle::parse(std::string_view bytes, const std::string& source) {
  return PickleMachine(bytes, source).run();
}

}  // namespace headroom::pytorch_file
