# Two commands are all that a fresh Debian 12 needs: make serve, make test.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
MODELS := build/models
MINILM := $(MODELS)/minilm/1/model.pt
GRPC_ADDRESS ?= 127.0.0.1:8001
HTTP_ADDRESS ?= 127.0.0.1:8002
CONFORMANCE ?= ../shared/conformance
CLANG_FORMAT ?= clang-format-14
CXX_FILES = git ls-files --cached --others --exclude-standard '*.cc' '*.h'

# Paths are hashed relative to the checkout, so that a clone in another folder finds what this one compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export PYTHONDONTWRITEBYTECODE := 1
export HEADROOM_BIN := $(CURDIR)/build/release/headroom
export HEADROOM_FAULTY_BIN := $(CURDIR)/build/release/headroom_faulty

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target words; do
		printf '  make %-13s %s\n' "$$target" "$$words"
	done

.PHONY: setup
setup: ## install what is missing: Debian packages, and a Python environment in .venv
	@setup/setup build

.PHONY: build
build: setup ## release build of everything, into build/release
	@cmake --preset release
	cmake --build --preset release

.PHONY: server
server: setup
	@cmake --preset release
	cmake --build --preset release --target headroom headroom_dry

EXPORTER := $(addprefix examples/,export_minilm.py export_model.py export_checks.py repository_entry.py)
# Order only: a server that was built again is no reason to export again.
$(MINILM): $(EXPORTER) requirements.txt | server
	@echo "exporting the demo model into $(MODELS)"
	$(PYTHON) examples/export_minilm.py --repository $(MODELS) --dry-card build/release/headroom_dry

.PHONY: models
models: $(MINILM) ## export the demo model into build/models, where it is missing or outdated

.PHONY: serve
serve: server $(MINILM) ## set up, build, export the demo model and serve it (ARGS="..." for more options)
	@printf '\n%s\n\n    %s\n\n' 'When it says that it is ready, call it from another terminal:' \
		'cd $(CURDIR) && $(PYTHON) examples/client.py --address $(GRPC_ADDRESS)'
	exec build/release/headroom serve --model-repository $(MODELS) \
		--grpc-address $(GRPC_ADDRESS) --http-address $(HTTP_ADDRESS) $(ARGS)

.PHONY: test
test: build $(MINILM) ## unit and integration tests, and, where it is there, ../shared/conformance
	@ctest --preset release --no-tests=error -L '^(unit|integration)$$'
	$(PYTHON) -m pytest -q -p no:cacheprovider test/runtime/dry_cuda test/examples test/integration
	if [[ -d "$(CONFORMANCE)" ]]; then
		$(PYTHON) -m pytest -q -p no:cacheprovider "$(CONFORMANCE)"
	else
		echo "no conformance suite in $(CONFORMANCE): its tests are left out"
	fi

.PHONY: asan
asan: setup ## unit tests and conformance under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan
	cmake --build --preset asan
	export LSAN_OPTIONS="suppressions=$(CURDIR)/test/lsan_suppressions.txt:print_suppressions=0"
	ctest --preset asan --no-tests=error -L '^unit$$'
	if [[ -d "$(CONFORMANCE)" ]]; then
		HEADROOM_BIN="$(CURDIR)/build/asan/headroom" HEADROOM_FAULTY_BIN="$(CURDIR)/build/asan/headroom_faulty" HEADROOM_SLACK=4 \
			$(PYTHON) -m pytest -q -p no:cacheprovider "$(CONFORMANCE)" -m "core or memory"
	fi

# GCC 12's ThreadSanitizer cannot start where the kernel randomises addresses with more bits than it knows of.
.PHONY: tsan
tsan: setup ## unit tests of what needs neither torch nor gRPC under ThreadSanitizer
	@cmake --preset tsan
	cmake --build --preset tsan
	steady=()
	if setarch --addr-no-randomize true 2>/dev/null; then steady=(setarch --addr-no-randomize); fi
	"$${steady[@]}" ctest --preset tsan --no-tests=error -L '^unit$$'

.PHONY: mutants
mutants: setup ## plants deliberate bugs and expects the tests to find each (ARGS="--rotate 3": some of them)
	@test/mutants/run $(ARGS)

.PHONY: fuzz
fuzz: setup ## ten minutes of libFuzzer for each target of test/fuzz (ARGS="--seconds 60 traffic")
	@setup/setup build check
	test/fuzz/run $(ARGS)

.PHONY: lint
lint: ## formatting, clang's warnings with thread-safety analysis, and clang-tidy: all at zero
	@setup/setup build check
	$(MAKE) --no-print-directory format-check
	cmake --preset lint
	cmake --build --preset lint

.PHONY: format
format: ## format all C++ files in place
	@setup/setup build check
	$(CXX_FILES) | xargs --no-run-if-empty $(CLANG_FORMAT) -i

.PHONY: format-check
format-check: ## say which C++ files are not formatted
	@setup/setup build check
	$(CXX_FILES) | xargs --no-run-if-empty $(CLANG_FORMAT) --dry-run -Werror

.PHONY: clean
clean: ## remove build/ (not .venv)
	@rm -rf build
