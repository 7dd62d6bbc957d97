// A video's pictures through FFmpeg, one at a time: memory is that of a few
// pictures and of the container's index, whatever the length.
//
// Read are the containers and codecs of the two lists in the .cpp; names say
// nothing. A picture that is damaged is taken as the decoder mends it, and
// counted; where the file ends, so do the pictures.
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
