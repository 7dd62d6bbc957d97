// Reads a video's pictures through FFmpeg, one at a time: needs memory for a
// few pictures and the container's index, for any length.
//
// Reads the containers and codecs in the two lists of the .cpp, whatever the
// file's name. A damaged picture is used as the decoder repairs it, and
// counted; a truncated file ends with its last picture.
#pragma once

#include <memory>
#include <string>

#include "worker/video/video_api.h"

namespace headroom::video {

std::unique_ptr<VideoReader> open_video(const std::string& file,
                                        int64_t max_pixels,
                                        std::string& reason);

// Pictures as an MP4 of MPEG-4 pictures (mp4v, as YOLOv5 writes them) through
// FFmpeg, without sound, as they come: memory does not grow with their number,
// but for the container's index, some 30 bytes a picture.
std::unique_ptr<VideoWriter> create_video(const std::string& file,
                                          const VideoFormat& format,
                                          std::string& reason);

}  // namespace headroom::video
