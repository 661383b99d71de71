# The commands of this repository. Underneath is CMake with the presets of
# CMakePresets.json; each preset builds in build/<preset>.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
CASES ?= 2000
TORCH ?= torch==2.9.1 transformers==5.24.0
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy-14

release := build/release
leanattn := $(release)/tools/leanattn
gpu := build/gpu
venv := build/venv
sources = $(shell find $(wildcard include src tools tests fuzz examples bench python) \
  -name "*.h" -o -name "*.cpp" -o -name "*.cu" -o -name "*.cuh")

.DEFAULT_GOAL := help
.PHONY: help run test test-python test-torch build bench cuda test-gpu bench-gpu format check-format tidy check-install \
  sanitize asan tsan fuzz clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

run: $(release)/build.ninja ## install what is missing, build, and show it at work
	cmake --build $(release) --target leanattn_cli -j $(JOBS)
	@echo; $(leanattn) info
	@for capture in examples/data/*.safetensors; do echo; $(leanattn) run $$capture || exit; done
	@echo; $(leanattn) bench --quick
	@echo; $(leanattn) plan --heads 8 --kv-heads 2 \
	  --context 10000,2200 --workers 7 --svg build/schedule.svg

build: $(release)/build.ninja ## build everything
	cmake --build $(release) -j $(JOBS)

test: build ## build, and pass every test
	ctest --test-dir $(release) --output-on-failure --no-tests=error -j $(JOBS)

bench: $(release)/build.ninja ## measure this machine; writes build/bench.json
	cmake --build $(release) --target leanattn_cli -j $(JOBS)
	$(leanattn) bench --json build/bench.json

test-python: $(venv)/bin/python ## install the Python package into build/venv, and pass its tests
	$(venv)/bin/pip install --quiet '.[test]'
	$(venv)/bin/python -m mypy
	$(venv)/bin/python examples/decode.py
	$(venv)/bin/python -m pytest --quiet --junitxml=build/venv/test-results.xml

test-torch: test-python ## the same, and again with PyTorch and Transformers, which take gigabytes
	$(venv)/bin/pip install --quiet --no-cache-dir $(TORCH)
	$(venv)/bin/python -m pytest --quiet --junitxml=build/venv/test-results-torch.xml

test-gpu: build-gpu ## on a machine with a GPU: pass every test, and CASES (2000) random problems
	ctest --test-dir $(gpu) --output-on-failure --no-tests=error -j $(JOBS) -E "^verify"
	$(gpu)/tools/leanattn verify --backend cuda --cases $(CASES)

bench-gpu: build-gpu ## measure the GPU, and PyTorch if there; writes build/bench-{gpu,peers}.json
	$(gpu)/bench/gpu/leanattn_bench_gpu --json build/bench-gpu.json
	@if python3 -c "import torch" 2>/dev/null; then \
	  python3 bench/gpu/peers.py build/bench-gpu.json --json build/bench-peers.json; fi

cuda: build/cuda/build.ninja ## with nvcc, on a machine without a GPU: build for every GPU
	cmake --build build/cuda -j $(JOBS)

.PHONY: build-gpu
build-gpu: $(gpu)/build.ninja
	cmake --build $(gpu) -j $(JOBS)

check-install: build ## install to a folder, static and shared, and build a consumer of it
	scripts/check-install $(release) build/installed

sanitize: asan tsan ## pass the tests under the address, undefined-behaviour and thread sanitizers

asan tsan: %: build/%/build.ninja
	cmake --build build/$* -j $(JOBS)
	ctest --test-dir build/$* --output-on-failure --no-tests=error -j $(JOBS)

fuzz: build/asan/build.ninja ## run every fuzzer for FUZZ_SECONDS (60) seconds
	cmake --build build/asan --target leanattn_fuzzers -j $(JOBS)
	scripts/fuzz build/asan/fuzz $(FUZZ_SECONDS)

format: setup-ci ## lay out the sources
	@$(CLANG_FORMAT) -i $(sources)

check-format: setup-ci ## check the layout of the sources, and the README's examples
	@$(CLANG_FORMAT) --dry-run -Werror $(sources)
	scripts/check-readme

tidy: setup-ci build ## lint with clang-tidy
	scripts/tidy $(release) $(CLANG_TIDY)

clean: ## remove what was built
	rm -rf build

# CMake configures again by itself when a CMakeLists.txt changes.
build/%/build.ninja: CMakePresets.json
	cmake --preset $*

$(release)/build.ninja: | setup-test
$(gpu)/build.ninja build/cuda/build.ninja: | setup-cuda
$(venv)/bin/python: | setup-python
	python3 -m venv $(venv)
build/asan/build.ninja build/tsan/build.ninja: | setup-ci

.PHONY: setup-test setup-cuda setup-python setup-ci
setup-test setup-cuda setup-python setup-ci: setup-%:
	@scripts/setup $*
