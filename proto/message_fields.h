// Conversion between a struct and its protobuf message: each field is named
// once, for both directions.
//
//   HEADROOM_FIELDS(Member, worker_id, state, slots)
//   constexpr MemberState last_of(MemberState) { return MemberState::kGone; }
//
//   auto message = wire::to_message<wire::LoggedMember>(member);
//   auto member = wire::from_message<Member>(message);
//
// Use HEADROOM_FIELDS in the struct's namespace, which argument-dependent
// lookup searches. It defines fields(). If a name in the message differs, write
// fields() by hand instead:
//
//   void fields(auto& archive, wire::Either<Member> auto& member) {
//     archive("worker_id", member.name);
//   }
//
// A field may be a string, bool, int, int64_t, uint64_t, double, an enum with
// last_of() (an int32), a struct with fields() or with to_wire() and
// from_wire(), or an optional, vector or set of these; also milliseconds (an
// int64 called NAME_ms in the message) and a plan (its JSON, called NAME_json).
// A protobuf field of type `string` gets valid UTF-8 (invalid bytes become
// '?'); use `bytes` to keep bytes.
//
// Errors: CheckFailure if the message has no field of that name and type;
// from_message throws Error (tag "wire", exit 2) for an unknown enum number
// and for a text that is not a plan.
//
// Uses reflection, which is slower than accessors; control messages are few.
#pragma once

#include <google/protobuf/message.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"

namespace headroom::wire {

#define HEADROOM_FIELDS(Struct, ...)                                         \
  void fields(auto& archive, ::headroom::wire::Either<Struct> auto& value) { \
    HEADROOM_EXPAND(HEADROOM_EACH(__VA_ARGS__))                              \
  }
// The recursion of HEADROOM_FIELDS: one call of the archive for each name.
#define HEADROOM_EACH(name, ...) \
  archive(#name, value.name);    \
  __VA_OPT__(HEADROOM_EACH_NEXT HEADROOM_PARENTHESES(__VA_ARGS__))
#define HEADROOM_EACH_NEXT() HEADROOM_EACH
#define HEADROOM_PARENTHESES ()
#define HEADROOM_EXPAND(...) \
  HEADROOM_EXPAND2(HEADROOM_EXPAND2(HEADROOM_EXPAND2(__VA_ARGS__)))
#define HEADROOM_EXPAND2(...) \
  HEADROOM_EXPAND3(HEADROOM_EXPAND3(HEADROOM_EXPAND3(__VA_ARGS__)))
#define HEADROOM_EXPAND3(...) \
  HEADROOM_EXPAND4(HEADROOM_EXPAND4(HEADROOM_EXPAND4(__VA_ARGS__)))
#define HEADROOM_EXPAND4(...) __VA_ARGS__

template <typename T, typename Struct>
concept Either = std::same_as<std::remove_const_t<T>, Struct>;

// The plan of a message's field plan_json. Throws Error (tag "wire", exit 2).
plan::Plan plan_of_message(const std::string& plan_json);

namespace internal {

using google::protobuf::FieldDescriptor;

template <typename T>
concept IsList = !std::same_as<T, std::string> && requires(T & list) {
  list.insert(list.end(), *list.begin());
};

template <typename T>
concept HasConversion = requires(const T& value) {
  to_wire(value);
};

template <typename T>
concept IsEnum = std::is_enum_v<T>;

// The field's name in the message.
template <typename T>
std::string name_on_wire(const char* name) {
  if (std::same_as<T, std::chrono::milliseconds>) return cat(name, "_ms");
  return std::same_as<T, plan::Plan> ? cat(name, "_json") : name;
}

template <typename T>
constexpr FieldDescriptor::CppType type_on_wire() {
  if (std::same_as<T, std::string> || std::same_as<T, plan::Plan>) {
    return FieldDescriptor::CPPTYPE_STRING;
  }
  if (std::same_as<T, bool>) return FieldDescriptor::CPPTYPE_BOOL;
  if (std::same_as<T, int> || IsEnum<T>) return FieldDescriptor::CPPTYPE_INT32;
  if (std::same_as<T, int64_t> || std::same_as<T, std::chrono::milliseconds>) {
    return FieldDescriptor::CPPTYPE_INT64;
  }
  if (std::same_as<T, uint64_t>) return FieldDescriptor::CPPTYPE_UINT64;
  if (std::same_as<T, double>) return FieldDescriptor::CPPTYPE_DOUBLE;
  return FieldDescriptor::CPPTYPE_MESSAGE;
}

// Finds the field by name, and checks that its type is that of T.
template <typename T>
const FieldDescriptor& field_of(const google::protobuf::Message& message,
                                const char* name, bool is_list) {
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByName(name_on_wire<T>(name));
  HEADROOM_CHECK(field != nullptr && field->cpp_type() == type_on_wire<T>() &&
                     field->is_repeated() == is_list,
                 message.GetTypeName() + " has no such field " + name);
  return *field;
}

}  // namespace internal

class MessageWriter {
 public:
  explicit MessageWriter(google::protobuf::Message& message)
      : message_(message), access_(*message.GetReflection()) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    put(internal::field_of<T>(message_, name, false), value);
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    const auto& field = internal::field_of<T>(message_, name, false);
    if (value) put(field, *value);
  }
  template <internal::IsList List>
  void operator()(const char* name, const List& list) {
    using T = typename List::value_type;
    const auto& field = internal::field_of<T>(message_, name, true);
    for (const T& value : list) put(field, value);
  }

 private:
  template <typename T>
  void put(const internal::FieldDescriptor& field, const T& value) {
    const bool is_list = field.is_repeated();
    if constexpr (std::same_as<T, std::string>) {
      const bool is_text =
          field.type() == internal::FieldDescriptor::TYPE_STRING;
      std::string text = is_text ? valid_utf8(value) : value;
      is_list ? access_.AddString(&message_, &field, std::move(text))
              : access_.SetString(&message_, &field, std::move(text));
    } else if constexpr (std::same_as<T, plan::Plan>) {
      put(field, plan::plan_to_message(value));
    } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
      put(field, static_cast<int64_t>(value.count()));
    } else if constexpr (internal::IsEnum<T>) {
      put(field, static_cast<int>(value));
    } else if constexpr (std::same_as<T, int64_t>) {
      is_list ? access_.AddInt64(&message_, &field, value)
              : access_.SetInt64(&message_, &field, value);
    } else if constexpr (std::same_as<T, bool>) {
      access_.SetBool(&message_, &field, value);
    } else if constexpr (std::same_as<T, int>) {
      access_.SetInt32(&message_, &field, value);
    } else if constexpr (std::same_as<T, uint64_t>) {
      access_.SetUInt64(&message_, &field, value);
    } else if constexpr (std::same_as<T, double>) {
      access_.SetDouble(&message_, &field, value);
    } else {
      google::protobuf::Message& part =
          *(is_list ? access_.AddMessage(&message_, &field)
                    : access_.MutableMessage(&message_, &field));
      if constexpr (internal::HasConversion<T>) {
        part.CopyFrom(to_wire(value));
      } else {
        MessageWriter writer(part);
        fields(writer, value);
      }
    }
  }

  google::protobuf::Message& message_;
  const google::protobuf::Reflection& access_;
};

class MessageReader {
 public:
  explicit MessageReader(const google::protobuf::Message& message)
      : message_(message), access_(*message.GetReflection()) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    value = get<T>(internal::field_of<T>(message_, name, false), 0);
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    const auto& field = internal::field_of<T>(message_, name, false);
    if (access_.HasField(message_, &field)) value = get<T>(field, 0);
  }
  template <internal::IsList List>
  void operator()(const char* name, List& list) {
    using T = typename List::value_type;
    const auto& field = internal::field_of<T>(message_, name, true);
    list.clear();
    for (int i = 0; i < access_.FieldSize(message_, &field); ++i) {
      list.insert(list.end(), get<T>(field, i));
    }
  }

 private:
  // `index` is the position in a list; unused for other fields.
  template <typename T>
  T get(const internal::FieldDescriptor& field, int index) {
    const bool is_list = field.is_repeated();
    if constexpr (std::same_as<T, std::string>) {
      return is_list ? access_.GetRepeatedString(message_, &field, index)
                     : access_.GetString(message_, &field);
    } else if constexpr (std::same_as<T, plan::Plan>) {
      return plan_of_message(get<std::string>(field, index));
    } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
      return T(get<int64_t>(field, index));
    } else if constexpr (internal::IsEnum<T>) {
      const int number = get<int>(field, index);
      if (number < 0 || number > static_cast<int>(last_of(T()))) {
        throw Error("wire", cat(field.name(), " ", number, " is unknown"),
                    "start the build that wrote the log");
      }
      return static_cast<T>(number);
    } else if constexpr (std::same_as<T, int64_t>) {
      return is_list ? access_.GetRepeatedInt64(message_, &field, index)
                     : access_.GetInt64(message_, &field);
    } else if constexpr (std::same_as<T, bool>) {
      return access_.GetBool(message_, &field);
    } else if constexpr (std::same_as<T, int>) {
      return access_.GetInt32(message_, &field);
    } else if constexpr (std::same_as<T, uint64_t>) {
      return access_.GetUInt64(message_, &field);
    } else if constexpr (std::same_as<T, double>) {
      return access_.GetDouble(message_, &field);
    } else {
      const google::protobuf::Message& part =
          is_list ? access_.GetRepeatedMessage(message_, &field, index)
                  : access_.GetMessage(message_, &field);
      if constexpr (internal::HasConversion<T>) {
        using Part = decltype(to_wire(std::declval<const T&>()));
        return from_wire(static_cast<const Part&>(part));
      } else {
        T value{};
        MessageReader reader(part);
        fields(reader, value);
        return value;
      }
    }
  }

  const google::protobuf::Message& message_;
  const google::protobuf::Reflection& access_;
};

template <typename Message, typename Struct>
Message to_message(const Struct& value) {
  Message message;
  MessageWriter writer(message);
  fields(writer, value);
  return message;
}

template <typename Struct>
Struct from_message(const google::protobuf::Message& message) {
  Struct value;
  MessageReader reader(message);
  fields(reader, value);
  return value;
}

}  // namespace headroom::wire
