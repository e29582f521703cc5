# Everything runs in a virtual environment of its own, .venv, made on first use.
PYTHON ?= python3
RUN := .venv/bin/python

.PHONY: demo test test-slow test-avx2 wheel bench tune tables mutants

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --no-compile --disable-pip-version-check -r requirements.txt
	touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	.venv/bin/pip install --quiet --no-compile --disable-pip-version-check -r requirements-dev.txt
	touch $@

demo: .venv/installed           ## SCROLL on scikit-learn's digits: accuracies, a CSV row; the same bits under 25 schedules
	$(RUN) main.py --model scroll --dataset seq-digits --model_config best --adaptation none
	$(RUN) scripts/certify.py --model scroll --dataset seq-digits --model_config best --adaptation none --schedules 20

test: .venv/installed-dev       ## lint, then the test suite but for its slow tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n 2 -m "not slow"

test-slow: .venv/installed-dev  ## the slow ones: real kills, processes, training runs
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n 2 -m slow

# Other CPUs: oneDNN and torch held to AVX2, on tests that embed, train, adapt, lift, solve, and check a certificate.
test-avx2: .venv/installed-dev
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(RUN) -m pytest -q -n 2 -m "not slow" \
		tests/scroll/test_embedding.py tests/scroll/test_integer_network.py tests/scroll/test_adaptation.py tests/scroll/test_lift.py \
		tests/scroll/test_rounded.py tests/models/test_mir.py \
		tests/bench/test_certificates.py::test_the_committed_certificate_of_the_digits_holds_here

# The 95 % of tests/mutants.py, for the files whose every bit counts; an hour each, with --sample 80 minutes.
mutants: .venv/installed-dev    ## changes single operators, constants, statements and expects the tests to notice
	OMP_NUM_THREADS=1 $(RUN) tests/mutants.py scroll/sums/statistics.py tests/scroll/test_statistics.py tests/scroll/test_statistics_files.py tests/scroll/test_parts.py::test_files_of_before_features_were_rounded_to_float32_are_refused tests/scroll/test_hostile_inputs.py::test_sums_that_memory_cannot_hold_are_refused_before_they_are_made
	OMP_NUM_THREADS=1 $(RUN) tests/mutants.py scroll/sums/exemplars.py tests/scroll/test_exemplars.py tests/scroll/test_byte_order.py
	OMP_NUM_THREADS=1 $(RUN) tests/mutants.py scroll/heads/rounded.py tests/scroll/test_rounded.py
	OMP_NUM_THREADS=1 $(RUN) tests/mutants.py scroll/ground/grid.py tests/scroll/test_grid.py

wheel:                          ## builds and installs the library as its users do, without torch, and learns digits
	PYTHON=$(PYTHON) scripts/wheel_check.sh

bench: .venv/installed          ## speed, as ratios to common alternatives; needs nothing but the shipped weights
	$(RUN) scripts/bench.py

tune: .venv/installed           ## the values of models/config/, from held-out training data, the same number of trials for each method
	$(RUN) scripts/tune.py --dataset seq-cifar10
	$(RUN) scripts/tune.py --dataset seq-cifar100

tables: .venv/installed         ## tables and figures from committed rows: those of results/, of README.md and of docs/
	$(RUN) scripts/report.py
	$(RUN) scripts/documents.py

.PHONY: docs
docs: .venv/installed-dev       ## the documentation as a site in data/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
