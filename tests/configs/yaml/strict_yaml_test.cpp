#include "configs/yaml/strict_yaml.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::yaml {
namespace {

std::string refusal(const std::string& text) {
  return testing::refusal_of([&] { parse_yaml(text, "f.yaml"); });
}

TEST(StrictYaml, RemembersWhereEverythingWasWritten) {
  const YamlValue root = parse_yaml(
      "a: 1\n"
      "b:\n"
      "  - x\n"
      "  - {c: \"3\", d: }\n",
      "f.yaml");
  ASSERT_EQ(root.kind, YamlValue::Kind::kMapping);
  EXPECT_EQ(to_string(root.entries[0].key_place), "f.yaml:1:1");
  EXPECT_EQ(to_string(root.entries[0].value.place), "f.yaml:1:4");
  const YamlValue& list = *root.find("b");
  EXPECT_EQ(to_string(list.items[0].place), "f.yaml:3:5");
  const YamlValue& inner = list.items[1];
  EXPECT_EQ(to_string(inner.place), "f.yaml:4:5");
  EXPECT_EQ(inner.find("c")->scalar, "3");
  EXPECT_TRUE(inner.find("c")->quoted);
  EXPECT_FALSE(list.items[0].quoted);
  EXPECT_EQ(inner.find("d")->kind, YamlValue::Kind::kNull);
  EXPECT_EQ(root.find("e"), nullptr);
}

TEST(StrictYaml, EmptyFilesAreNull) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    EXPECT_EQ(parse_yaml(text, "f.yaml").kind, YamlValue::Kind::kNull) << text;
  }
}

TEST(StrictYaml, WindowsFilesAreRead) {
  const YamlValue root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\r\nb: two\r\n",
      "f.yaml");
  EXPECT_EQ(root.find("a")->scalar, "1");
  EXPECT_EQ(root.find("b")->scalar, "two");
}

TEST(StrictYaml, RefusesTabs) {
  EXPECT_EQ(refusal("a: 1\nb:\n\tc: 2\n"),
            "[config] f.yaml:3:1: a tab: YAML is indented with spaces; replace "
            "the tab");
  EXPECT_EQ(refusal("a:\t1\n"),
            "[config] f.yaml:1:3: a tab: YAML is indented with spaces; replace "
            "the tab");
  EXPECT_EQ(parse_yaml("a: 1  # one\ttab\n", "f.yaml").find("a")->scalar, "1");
  EXPECT_EQ(parse_yaml("a: 1\t# one\t\nb: 2\n", "f.yaml").find("a")->scalar,
            "1");
}

TEST(StrictYaml, RefusesDuplicateKeys) {
  EXPECT_EQ(refusal("a: 1\nb: 2\na: 3\n"),
            "[config] f.yaml:3:1: key 'a' stands here a second time, first in "
            "line 1: keep one of the two");
  EXPECT_EQ(refusal("x:\n  a: 1\n  a: 1\n"),
            "[config] f.yaml:3:3: key 'a' stands here a second time, first in "
            "line 2: keep one of the two");
  EXPECT_EQ(parse_yaml("x: {a: 1}\na: 2\n", "f.yaml").entries.size(), 2u);
}

TEST(StrictYaml, RefusesSyntaxErrors) {
  EXPECT_EQ(refusal("a: 1\n  b: 2\n"),
            "[config] f.yaml:2:4: not valid YAML (illegal map value): correct "
            "the line, or the one above it");
  EXPECT_EQ(refusal("a: [1, 2\nb: 3\n").rfind("[config] f.yaml:2:", 0), 0u);
  EXPECT_EQ(
      refusal("a: \"open\nb: 2\n"),
      "[config] f.yaml:3:1: the file ends inside a value: close the quote "
      "or the bracket that was opened above");
  EXPECT_EQ(refusal("a: 'open").rfind("[config] f.yaml:1:1: the file ends", 0),
            0u);
  for (const char* text : {"{a: 1\n", "a: [1\n", "a: }\n", "a: @b\n"}) {
    EXPECT_EQ(refusal(text).rfind("[config] f.yaml:", 0), 0u) << text;
  }
}

TEST(StrictYaml, BlockTextsAndDocumentMarks) {
  const YamlValue root = parse_yaml(
      "---\ndownload: |\n  import os\n  os.x()\nnames: [a]\n...\n", "f.yaml");
  EXPECT_EQ(root.find("download")->scalar, "import os\nos.x()\n");
  EXPECT_EQ(root.find("names")->items.size(), 1u);
  EXPECT_EQ(parse_yaml("a: b", "f.yaml").find("a")->scalar, "b");
}

TEST(StrictYaml, RefusesUnsupportedSyntax) {
  EXPECT_EQ(refusal("a: &x [1]\nb: *x\n"),
            "[config] f.yaml:1:4: an anchor (&name): write the value out where "
            "it is used; anchors are not read");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "[config] f.yaml:3:1: a second YAML document: keep one document "
            "per file");
  EXPECT_EQ(refusal("[1, 2]: 3\n"),
            "[config] f.yaml:1:1: a list as a key: keys are words");
}

TEST(StrictYaml, DeepNestingIsRefusedNotACrash) {
  const std::string text = refusal(std::string(100'000, '['));
  EXPECT_EQ(text.rfind("[config] f.yaml:", 0), 0u) << text;
}

TEST(StrictYaml, NamesWrongTypes) {
  const YamlValue root = parse_yaml(
      "n: 1.5\nw: word\nq: \"3\"\nl: [1]\nm: {a: 1}\ne:\n", "f.yaml");
  EXPECT_EQ(testing::refusal_of([&] { as_int64(*root.find("n"), "n"); }),
            "[config] f.yaml:1:4: n is '1.5': write a whole number here");
  EXPECT_EQ(testing::refusal_of([&] { as_double(*root.find("w"), "w"); }),
            "[config] f.yaml:2:4: w is 'word': write a number here");
  EXPECT_EQ(testing::refusal_of([&] { as_int64(*root.find("q"), "q"); }),
            "[config] f.yaml:3:4: q is '3': write a whole number here");
  EXPECT_EQ(testing::refusal_of([&] { as_text(*root.find("l"), "l"); }),
            "[config] f.yaml:4:4: l is a list: write one word or a \"quoted "
            "text\" here");
  EXPECT_EQ(testing::refusal_of([&] { as_double(*root.find("m"), "m"); }),
            "[config] f.yaml:5:4: m is a mapping: write a number here");
  EXPECT_EQ(testing::refusal_of([&] { as_text(*root.find("e"), "e"); }),
            "[config] f.yaml:6:1: e is empty: write one word or a \"quoted "
            "text\" here");
}

TEST(StrictYaml, MappingsOfKnownKeys) {
  const std::vector<std::string> known = {"train", "val", "names"};
  EXPECT_EQ(testing::refusal_of([&] {
              require_mapping(parse_yaml("train: x\nnmaes: y\n", "f.yaml"),
                              "a data file", known);
            }),
            "[config] f.yaml:2:1: unknown key 'nmaes' in a data file: did you "
            "mean 'names'?");
  EXPECT_EQ(testing::refusal_of([&] {
              require_mapping(parse_yaml("wavelength: 3\n", "f.yaml"),
                              "a data file", known);
            }),
            "[config] f.yaml:1:1: unknown key 'wavelength' in a data file: the "
            "keys are train val names");
  EXPECT_EQ(testing::refusal_of([&] {
              require_mapping(parse_yaml("- 1\n", "f.yaml"), "a data file",
                              known);
            }),
            "[config] f.yaml:1:1: a data file is a list: write lines of the "
            "form 'key: value'");
  EXPECT_EQ(
      testing::refusal_of(
          [&] { require(parse_yaml("a: 1\n", "f.yaml"), "names"); }),
      "[config] f.yaml:1:1: the key 'names' is missing: add a line 'names: "
      "...'");
}

TEST(StrictYaml, FilesThatCannotBeRead) {
  const testing::TemporaryFolder folder;
  const std::string missing = (folder.path() / "none.yaml").string();
  EXPECT_EQ(testing::refusal_of([&] { read_config_file(missing, "data"); }),
            "[data] there is no file " + missing + ": check the path");
  EXPECT_EQ(
      testing::refusal_of([&] { read_config_file(folder.path(), "data"); }),
      "[data] " + folder.path().string() + " is not a file: name a .yaml file");
  const auto large =
      folder.write("large.yaml", std::string(5 * 1024 * 1024, '#'));
  EXPECT_EQ(testing::refusal_of([&] { read_config_file(large, "data"); }),
            "[data] " + large.string() +
                " has 5 MiB, more than the 4 MiB that a YAML file of a run may "
                "have: name the right file");
  const auto page = folder.write("page.yaml", "<!DOCTYPE html>");
  EXPECT_EQ(testing::refusal_of([&] { read_config_file(page, "data"); }),
            "[data] " + page.string() +
                " is text (HTML or XML), not YAML in UTF-8: name the right "
                "file");
  const auto wide = folder.write("wide.yaml", "\xFF\xFEt");
  EXPECT_EQ(testing::refusal_of([&] { read_config_file(wide, "data"); }),
            "[data] " + wide.string() +
                " is UTF-16 text, not YAML in UTF-8: save it as UTF-8");
}

TEST(StrictYaml, RandomBytesNeverCrash) {
  const std::string alphabet =
      "a:- [],{}\n\"'#&*!|>%@`?\\ \t\x01\xff"
      "1.~";
  uint64_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += alphabet[(state >> 33) % alphabet.size()];
    }
    try {
      parse_yaml(text, "f.yaml");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("[config] f.yaml:", 0), 0u)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace headroom::yaml
