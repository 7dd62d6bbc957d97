#include "coordinator/reforming.h"

#include <algorithm>

namespace headroom {

std::vector<RankedMember> still_to_leave(
    const Reforming& reforming, const std::vector<RankedMember>& members) {
  std::vector<RankedMember> waited_for;
  for (const RankedMember& member : members) {
    if (!reforming.left.contains(member.worker_id))
      waited_for.push_back(member);
  }
  return waited_for;
}

MemoryShortage shortage_of(const Reforming& reforming,
                           const std::vector<RankedMember>& members) {
  MemoryShortage shortage = reforming.left.at(members[0].worker_id).shortage;
  int64_t room = 0;
  for (const RankedMember& member : members) {
    const MemoryShortage& own = reforming.left.at(member.worker_id).shortage;
    if (member.rank == shortage.rank) shortage = own;
    if (own.room_bytes > 0) {
      room = room == 0 ? own.room_bytes : std::min(room, own.room_bytes);
    }
  }
  shortage.room_bytes = room;
  return shortage;
}

}  // namespace headroom
