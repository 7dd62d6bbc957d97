# Joins the page's files into one HTML text inside a C++ file.
# cmake -DPAGE=page.html -DSTYLE=page.css -DSCRIPTS="a.js|b.js"
#       -DOUTPUT=page_text.cpp -P join_page.cmake
set(_most 200000)

file(READ "${PAGE}" _page)
file(READ "${STYLE}" _style)
set(_script "")
string(REPLACE "|" ";" _files "${SCRIPTS}")
foreach(_file IN LISTS _files)
  file(READ "${_file}" _text)
  string(APPEND _script "${_text}")
endforeach()

foreach(_mark "<!-- css -->" "<!-- report-data -->" "<!-- scripts -->")
  string(FIND "${_page}" "${_mark}" _at)
  if(_at EQUAL -1)
    message(FATAL_ERROR "[page] ${PAGE} has no ${_mark}: put it where that part goes")
  endif()
endforeach()
if(NOT _page MATCHES "^<!doctype html>\n")
  message(FATAL_ERROR "[page] ${PAGE} must begin with <!doctype html>, by which a report is known")
endif()
string(FIND "${_script}" "</script" _at)
if(NOT _at EQUAL -1)
  message(FATAL_ERROR "[page] a script says </script, which would end its element: write it apart")
endif()
string(REPLACE "<!-- css -->" "<style>\n${_style}</style>" _page "${_page}")
string(REPLACE "<!-- scripts -->" "<script>\n${_script}</script>" _page "${_page}")

string(LENGTH "${_page}" _length)
if(_length GREATER _most)
  message(FATAL_ERROR "[page] the page has ${_length} bytes, above ${_most}: shorten it")
endif()
file(WRITE "${OUTPUT}" "#include \"deploy/page/page_text.h\"

namespace headroom::page {

std::string_view page_text() {
  return R\"headroom_page(${_page})headroom_page\";
}

}  // namespace headroom::page
")
