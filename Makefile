# Every target does all of its own set-up on a Debian machine that has Python 3.11, g++ and make,
# and none that is already done.

PYTHON ?= python3
JOBS ?= $(shell nproc)
CTEST := ctest -j $(JOBS) --output-on-failure --no-tests=error
export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: demo test test-ops bench format lint clean package core configure-core
.DEFAULT_GOAL := demo

demo: package
	.venv/bin/nimble demo

# Quickest first.
test:
	@tools/install_packages build test
	@tools/section 'Layering' tools/check_layering.py
	@tools/section 'Format' tools/format --check
	@tools/section 'Lint' $(MAKE) --no-print-directory lint
	@tools/section 'C++ without PyTorch: AddressSanitizer, UndefinedBehaviorSanitizer' \
	  $(MAKE) --no-print-directory core CORE=build-asan SANITIZE=address,undefined
	@tools/section 'C++ without PyTorch: ThreadSanitizer' \
	  $(MAKE) --no-print-directory core CORE=build-tsan SANITIZE=thread
	@tools/section 'Package' $(MAKE) --no-print-directory package
	@tools/section 'C++: build' $(call configure,-DNIMBLE_TESTS=ON)
	@tools/section 'C++' $(CTEST) --test-dir build
	@tools/section 'Python' .venv/bin/pytest -q -n $(JOBS) --maxprocesses=4 -m 'not serial and not long'
	@tools/section 'Python, one at a time' \
	  bash -c '.venv/bin/pytest -q -m "serial and not long" || [ $$? = 5 ]'  # 5: there are none
	@tools/section 'C++ program outside this project' tools/run_example

# Every op of PyTorch's op database, every sample; `make test` takes a part of them.
test-ops: package
	.venv/bin/pytest -q -n $(JOBS) --maxprocesses=4 tests/test_op_database.py --whole-op-database

# The last step is long, as some peers compile and tune; `nimble bench --quick resnet50` is not.
bench: package .venv/peers
	@tools/install_packages bench
	$(call configure,-DNIMBLE_BENCH=ON)
	build/bench/overhead
	build/bench/kernels
	.venv/bin/python bench/mlp_call.py
	.venv/bin/nimble bench --json docs/bench.json --chart docs/results

format:
	@tools/install_packages test
	tools/format

lint: configure-core
	tools/lint build-core

clean:
	rm -rf build build-* .venv

# The stages that build without PyTorch, and their tests. A sanitizer's report is a failure.
CORE := build-core
core: configure-core
	cmake --build $(CORE)
	$(CTEST) --test-dir $(CORE)

configure-core:
	@tools/install_packages build test
	cmake -S . -B $(CORE) -G Ninja -DNIMBLE_TORCH=OFF -DNIMBLE_TESTS=ON $(if $(SANITIZE), \
	  -DNIMBLE_SANITIZE=$(SANITIZE) \
	  -DCMAKE_CXX_FLAGS_RELEASE='-O1 -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS')

# The Python package, editable, in .venv; its CMake tree is build/. Made again if a source changed.
package: build/installed

build/installed: .venv/installed $(shell find CMakeLists.txt cmake src python -not -path '*__pycache__*')
	.venv/bin/pip install --no-deps --no-build-isolation --editable . \
	  --config-settings build-dir=build
	@touch $@

.venv/installed: pyproject.toml tools/requirements.py
	tools/install_packages build
	$(PYTHON) -m venv .venv
	$(call install_requirements,test)
	@touch $@

# The engines that `nimble bench` compares with. It does without those that cannot be installed.
.venv/peers: .venv/installed
	$(call install_requirements,bench) || $(call install_one_by_one,bench)
	@touch $@

# Both print what pyproject.toml asks for, and install that.
install_requirements = .venv/bin/python tools/requirements.py $(1) > .venv/requirements-$(1).txt && \
  .venv/bin/pip install --requirement .venv/requirements-$(1).txt
install_one_by_one = xargs -n 1 .venv/bin/pip install < .venv/requirements-$(1).txt || true

# Builds more in the package's CMake tree.
configure = bash -c 'cmake -S . -B build $(1) && cmake --build build'
