#!/usr/bin/env bash
# Table 6: SCROLL and ENS on splits and on the Gaussian schedule. 150 runs. On two cores a run with the
# shipped weights takes a minute; those with the ResNet50 need its weights, and a GPU.
exec "$(dirname "$0")/_experiment.sh" table_6_ensemble "$@"
