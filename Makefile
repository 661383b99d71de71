# The commands of this repository. Underneath is CMake with the presets of
# CMakePresets.json; each preset builds in build/<preset>.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy-14

release := build/release
leanattn := $(release)/tools/leanattn
sources = $(shell find $(wildcard include src tools tests fuzz examples bench) -name "*.h" -o -name "*.cpp")

.DEFAULT_GOAL := help
.PHONY: help run test build bench format check-format tidy check-install sanitize asan tsan fuzz clean

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
	$(CLANG_FORMAT) -i $(sources)

check-format: setup-ci ## check the layout of the sources, and the README's example
	$(CLANG_FORMAT) --dry-run -Werror $(sources)
	scripts/check-readme

tidy: setup-ci build ## lint with clang-tidy
	scripts/tidy $(release) $(CLANG_TIDY)

clean: ## remove what was built
	rm -rf build

# CMake configures again by itself when a CMakeLists.txt changes.
build/%/build.ninja: CMakePresets.json
	cmake --preset $*

$(release)/build.ninja: | setup-test
build/asan/build.ninja build/tsan/build.ninja: | setup-ci

.PHONY: setup-test setup-ci
setup-test setup-ci: setup-%:
	@scripts/setup $*
