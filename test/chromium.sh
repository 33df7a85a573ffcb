#!/bin/sh
# Runs the program $CHROMIUM with Playwright's arguments, but without the two pages that Chromium renders for its address
# bar beside every page: they take more CPU time than a page of the console. Chromium reads only the last
# --disable-features, and Playwright has one of its own: this adds to it.
set -eu
for argument do
  shift
  case $argument in
    --disable-features=*) argument=$argument,WebUIOmniboxPopup,WebUIOmniboxAimPopup ;;
  esac
  set -- "$@" "$argument"
done
exec "$CHROMIUM" "$@"
