#include "configs/yaml/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::yaml {
namespace {
SourcePlace place_of(const std::string& file, const YAML::Mark& mark) {
  return {file, mark.line + 1, mark.column + 1};
}

void refuse_tabs(const std::string& text, const std::string& file) {
  SourcePlace place{file, 1, 1};
  bool in_comment = false;
  for (const char c : text) {
    if (c == '\n') {
      ++place.line;
      place.column = 1;
      in_comment = false;
      continue;
    }
    if (c == '#') in_comment = true;
    if (c == '\t' && !in_comment) {
      refuse(place, "a tab", "YAML is indented with spaces; replace the tab");
    }
    ++place.column;
  }
}

// Replaces tabs before a comment or the end of a line by spaces: they separate
// nothing.
std::string without_trailing_tabs(std::string text) {
  bool is_trailing = true;
  for (auto c = text.rbegin(); c != text.rend(); ++c) {
    if (*c == '\t' && is_trailing) *c = ' ';
    is_trailing =
        *c == '\n' || *c == '\r' || *c == '#' || (is_trailing && *c == ' ');
  }
  return text;
}

// Builds the tree from yaml-cpp's events: YAML::Node loses the order of equal
// keys and whether a word was quoted.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

  YamlValue take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(value_at(mark, YamlValue::Kind::kNull));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(place_of(file_, mark), "an alias (*name)",
           "write the value out; anchors and aliases are not read");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& text) override {
    refuse_anchor(mark, anchor);
    YamlValue value = value_at(mark, YamlValue::Kind::kScalar);
    value.scalar = text;
    value.quoted = tag == "!";
    add(std::move(value));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    open_.push_back({value_at(mark, YamlValue::Kind::kSequence), {}});
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string&,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    open_.push_back({value_at(mark, YamlValue::Kind::kMapping), {}});
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlValue value;
    std::map<std::string, int> line_of_key;
    bool has_key = false;  // a key was read, but not its value yet
  };

  YamlValue value_at(const YAML::Mark& mark, YamlValue::Kind kind) const {
    YamlValue value;
    value.kind = kind;
    value.place = place_of(file_, mark);
    return value;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor == 0) return;
    refuse(place_of(file_, mark), "an anchor (&name)",
           "write the value out where it is used; anchors are not read");
  }

  void close() {
    YamlValue value = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(value));
  }

  void add(YamlValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.kind == YamlValue::Kind::kSequence) {
      parent.value.items.push_back(std::move(value));
    } else if (parent.has_key) {
      YamlEntry& entry = parent.value.entries.back();
      // yaml-cpp places a missing value on the next line.
      if (value.kind == YamlValue::Kind::kNull) value.place = entry.key_place;
      entry.value = std::move(value);
      parent.has_key = false;
    } else {
      add_key(parent, value);
    }
  }

  void add_key(Open& parent, const YamlValue& key) {
    if (key.kind != YamlValue::Kind::kScalar) {
      refuse(key.place, describe(key) + " as a key", "keys are words");
    }
    const auto [first, is_new] =
        parent.line_of_key.emplace(key.scalar, key.place.line);
    if (!is_new) {
      refuse(key.place,
             cat("key ", describe(key),
                 " stands here a second time, first in "
                 "line ",
                 first->second),
             "keep one of the two");
    }
    parent.value.entries.push_back({key.scalar, key.place, {}});
    parent.has_key = true;
  }

  std::string file_;
  YamlValue root_;
  std::vector<Open> open_;
};

}  // namespace

const YamlValue* YamlValue::find(const std::string& key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlValue parse_yaml(const std::string& given, const std::string& file) {
  const std::string text = without_trailing_tabs(given);
  refuse_tabs(text, file);
  // The end marker is needed because yaml-cpp accepts an unclosed quote at the
  // end of the file.
  std::istringstream stream(text + "\n...\n");
  const int64_t num_lines = std::count(text.begin(), text.end(), '\n') + 1;
  TreeBuilder builder(file);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    YamlValue root = builder.take();
    TreeBuilder second(file);
    if (parser.HandleNextDocument(second)) {
      YamlValue extra = second.take();
      if (extra.kind != YamlValue::Kind::kNull) {
        refuse(extra.place, "a second YAML document",
               "keep one document per file");
      }
    }
    if (root.kind == YamlValue::Kind::kNull) root.place = {file, 1, 1};
    return root;
  } catch (const YAML::Exception& error) {
    if (error.mark.line >= num_lines) {
      refuse({file, static_cast<int>(num_lines), 1},
             "the file ends inside a value",
             "close the quote or the bracket that was opened above");
    }
    refuse(place_of(file, error.mark), "not valid YAML (" + error.msg + ")",
           "correct the line, or the one above it");
  }
}

void refuse(const SourcePlace& place, const std::string& what,
            const std::string& remedy) {
  throw Error("config", to_string(place) + ": " + what, remedy);
}

std::string describe(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "empty";
    case YamlValue::Kind::kSequence:
      return "a list";
    case YamlValue::Kind::kMapping:
      return "a mapping";
    case YamlValue::Kind::kScalar:
      break;
  }
  // Long values are cut: a malicious file must not fill the terminal.
  if (value.scalar.size() > 60)
    return "'" + value.scalar.substr(0, 60) + "...'";
  return "'" + value.scalar + "'";
}

}  // namespace headroom::yaml
