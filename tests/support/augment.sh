#!/bin/sh
# A program for --augment-program. What it changes follows from the epoch and
# the index of a sample of 8 bits.
number() { echo "$header" | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }
while read -r header; do
  odd=$((($(number epoch) + $(number index)) % 2))
  boxes=$(number boxes)
  kept=$((odd && boxes > 1 ? 1 : boxes))
  echo "$header" | sed "s/\"boxes\":[0-9]*/\"boxes\":$kept/"
  head -c $((kept * 40))
  head -c $(((boxes - kept) * 40)) >/dev/null
  pixels=$(($(number height) * $(number width) * $(number channels)))
  if [ $odd = 1 ]; then
    head -c $pixels | tr '\162' '\000' # the gray of the background
  else
    head -c $pixels | tr '\000-\077' '\377'
  fi
done
