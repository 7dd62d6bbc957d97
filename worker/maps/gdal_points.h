// Returns a converter of points in reference system `system` to pixels of a
// picture, which uses PROJ. Returns nullptr and sets `reason` on failure.
#pragma once

#include <memory>
#include <string>

#include "worker/maps/map_api.h"

namespace headroom::maps {

std::unique_ptr<MapPoints> points_of_picture(const std::string& system,
                                             const MapPlace& place,
                                             std::string& reason);

}  // namespace headroom::maps
