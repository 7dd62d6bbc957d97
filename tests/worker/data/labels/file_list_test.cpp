#include "worker/data/labels/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(FileList, DirectoriesAreSearchedAndSorted) {
  const TemporaryFolder folder;
  for (const char* name : {"b/2.JPG", "a.png", "b/1.jpeg", "c/d/e.TIFF",
                           "notes.txt", "z.webp", "f.bmp", "movie.mp4"}) {
    folder.write(name, "x");
  }
  folder.write("g.gif", "x");
  DataReport report;
  const auto files = list_images({folder.path()}, report);
  std::vector<std::string> names;
  for (const fs::path file : files) {
    names.push_back(file.lexically_relative(folder.path()).string());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a.png", "b/1.jpeg", "b/2.JPG",
                                             "c/d/e.TIFF", "f.bmp", "z.webp"}));
  ASSERT_EQ(report.faults.size(), 1u);
  EXPECT_EQ(report.faults[0].kind, DataFaultKind::kUnsupportedImage);
}

TEST(FileList, AJfifIsAJpegAndImagesUnderOtherNamesAreNamed) {
  const TemporaryFolder folder;
  folder.write("a.jfif", "x");
  folder.write("b.jpg.bak", "\xFF\xD8\xFF\xE0");
  folder.write("c", "\x89PNG\r\n");
  folder.write("labels.txt", "\xFF\xD8\xFF\xE0");
  folder.write("notes.doc", "words");
  DataReport report;
  EXPECT_EQ(list_images({folder.path()}, report),
            std::vector{(folder.path() / "a.jfif").string()});
  ASSERT_EQ(report.faults.size(), 2u);
  const std::string text =
      to_string(report.faults[0]) + "\n" + to_string(report.faults[1]);
  EXPECT_THAT(text, HasSubstr("b.jpg.bak: unsupported format (a JPEG image, "
                              "but its suffix is .bak): image left out"));
  EXPECT_THAT(text, HasSubstr("c: unsupported format (a PNG image whose name "
                              "has no suffix)"));
}

TEST(FileList, CircularLinksEnd) {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", "x");
  fs::create_directory_symlink(folder.path(), folder.path() / "a/up");
  fs::create_symlink(folder.path() / "nowhere", folder.path() / "a/gone");
  DataReport report;
  EXPECT_EQ(list_images({folder.path()}, report).size(), 1u);
}

TEST(FileList, ListFilesNameImages) {
  const TemporaryFolder folder;
  const fs::path other = folder.write("elsewhere/3.jpg", "x");
  folder.write("lists/1.jpg", "x");
  const fs::path list =
      folder.write("lists/train.txt", "./1.jpg\r\n\n1.jpg\n./missing.jpg  \n" +
                                          other.string() + "\n");
  DataReport report;
  const auto listed = list_images({list}, report);
  const std::vector<fs::path> files(listed.begin(), listed.end());
  EXPECT_EQ(files,
            (std::vector<fs::path>{other, folder.path() / "lists/1.jpg",
                                   folder.path() / "lists/missing.jpg"}));
  // One image is listed twice, in two spellings.
  EXPECT_EQ(report.counts[static_cast<int>(DataFaultKind::kListedTwice)], 1);
}

TEST(FileList, AFileThatIsNoListIsNamedByItsKind) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& bytes) -> std::string {
    const fs::path list = folder.write("list.txt", bytes);
    DataReport report;
    return refusal_of([&] { list_images({list}, report); })
        .substr(7 + list.string().size());
  };
  const std::string remedy =
      ", not a list of images: write the path of an image into each line";
  EXPECT_EQ(refusal("<html>"), " is text (HTML or XML)" + remedy);
  EXPECT_EQ(refusal("\xFF\xFE/"), " is UTF-16 text" + remedy);
  EXPECT_EQ(refusal("\x89PNG"), " is a PNG image" + remedy);
  EXPECT_EQ(refusal(""), " is an empty file" + remedy);
}

TEST(FileList, AMissingSourceIsRefused) {
  DataReport report;
  const std::string text =
      refusal_of([&] { list_images({"/nowhere/images"}, report); });
  EXPECT_NE(text.find("/nowhere/images"), std::string::npos) << text;
}

TEST(LabelPath, ReplacesTheLastImagesFolder) {
  EXPECT_EQ(label_path("/images/a/images/train/1.jpg"),
            "/images/a/labels/train/1.txt");
  EXPECT_EQ(label_path("/data/pictures/1.jpeg"), "/data/pictures/1.txt");
}

TEST(LabelPath, FallsBackToTheImagesSide) {
  const TemporaryFolder folder;
  const fs::path image = folder.write("images/1.jpg", "x");
  EXPECT_EQ(label_path(image.native()), folder.path() / "labels/1.txt");
  folder.write("images/1.txt", "");
  EXPECT_EQ(label_path(image.native()), folder.path() / "images/1.txt");
  folder.write("labels/1.txt", "");
  EXPECT_EQ(label_path(image.native()), folder.path() / "labels/1.txt");
}

}  // namespace
}  // namespace headroom::labels
