#!/usr/bin/env bash
# Table 4: adapters or the whole network, by buffer size. 60 runs. On two cores a run takes 1 to 8 minutes.
exec "$(dirname "$0")/_experiment.sh" table_4_buffer_size "$@"
