#!/usr/bin/env bash
# i-Blurry and Si-Blurry of CIFAR-100: five online methods, SCROLL and its heads, five seeds. 120 runs.
# SCROLL's take half an hour of one core, the others 5 or 6 minutes each, MIR's 10: some six hours in all.
exec "$(dirname "$0")/_experiment.sh" blurry "$@"
